/* How many primitives of each kind have run: counted where every execution
   passes, so that tests can assert that ZenDNN did the work, and told to who
   listens. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Primitive kinds are below this number. */
enum { zendnn_execution_kinds = 64 };

/* Hears of executions in the thread of each; returns 1 when it prints a verbose
   line of its own. */
typedef int (
    *zendnn_listener_t)(int primitive_kind, const char* implementation);
/* From now on; none for NULL. */
void zendnn_hear_executions(zendnn_listener_t listener);

/* Returns 1 when a listener prints the execution's verbose line. */
int zendnn_count_execution(int primitive_kind, const char* implementation);
uint64_t zendnn_executions(int primitive_kind);
void zendnn_reset_executions(void);

#ifdef __cplusplus
}
#endif
