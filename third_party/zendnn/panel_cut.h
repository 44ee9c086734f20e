/* For tests: how a product is cut for the threads at hand. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An item is a chunk of rows times a panel of columns. Items are ordered by
   band, chunk, panel. Each thread takes a run of them; the runs differ by one
   item at most. */
typedef struct {
  int64_t threads, chunks, panels, bands;
} zendnn_panel_cut;

/* The cut of a float32 product with packed weights; no size is 0. */
zendnn_panel_cut
zendnn_cut_of_panels(int64_t rows, int64_t columns, int64_t depth);

#ifdef __cplusplus
}
#endif
