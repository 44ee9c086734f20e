/* How many primitives of each kind have run: counted where every execution
   passes, so that tests can assert that ZenDNN did the work. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Primitive kinds are below this number. */
enum { zendnn_execution_kinds = 64 };

void zendnn_count_execution(int primitive_kind);
uint64_t zendnn_executions(int primitive_kind);
void zendnn_reset_executions(void);

#ifdef __cplusplus
}
#endif
