/* The CPU whose choices ZENDNN_EMULATE asks for. It is read once, when it is
   first asked for. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is not known is 0 or NULL: then this CPU decides. */
typedef struct {
  const char* problem; /* why the value is not used */
  const char* name;    /* NULL: nothing is emulated */
  const char* vendor;
  unsigned family, model;
  int isa;           /* a zendnn_cpu_isa_t, the widest of that CPU */
  unsigned isa_bits; /* the same as libzendnn's cpu_isa_t */
  int64_t caches[3]; /* L1d, L2 and L3, in bytes */
  unsigned cores, cores_per_l3, sockets, nodes;
} zendnn_emulated_cpu;

const zendnn_emulated_cpu* zendnn_emulated(void);

/* A core's share of a data cache, in bytes. */
unsigned zendnn_emulated_cache(int level);

/* The number of NUMA nodes with CPUs in a folder laid out like
   /sys/devices/system; 0 if it lists none. */
unsigned zendnn_numa_nodes(const char* folder);

#ifdef __cplusplus
}
#endif
