/* Counters of executed primitives by kind, at the one place that every
   execution passes, so that tests can assert that ZenDNN ran. A listener is
   notified of each execution. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Primitive kinds are below this number. */
enum { zendnn_execution_kinds = 64 };

/* Called in the thread of each execution; returns 1 when it prints its own
   verbose line. */
typedef int (
    *zendnn_listener_t)(int primitive_kind, const char* implementation);
/* Replaces the listener; NULL removes it. */
void zendnn_hear_executions(zendnn_listener_t listener);

/* Returns 1 when the listener prints the execution's verbose line. */
int zendnn_count_execution(int primitive_kind, const char* implementation);
uint64_t zendnn_executions(int primitive_kind);
void zendnn_reset_executions(void);

#ifdef __cplusplus
}
#endif
