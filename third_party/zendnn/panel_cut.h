/* For tests: how a product is cut for the threads at hand. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Threads take equal numbers of items, in order: each is a chunk of the rows
   times a panel of the columns. Bands of panels follow one another, and in each
   band the chunks. */
typedef struct {
  int64_t threads, chunks, panels, bands;
} zendnn_panel_cut;

/* Of float32, with packed weights. */
zendnn_panel_cut
zendnn_cut_of_panels(int64_t rows, int64_t columns, int64_t depth);

#ifdef __cplusplus
}
#endif
