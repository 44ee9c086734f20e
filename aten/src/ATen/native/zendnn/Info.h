// Facts about this build of ZenDNN, and its counters.
#pragma once

#include <c10/macros/Export.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace at::native::zendnn {

C10_EXPORT std::string version();
// Compiler, sources and libraries, one 'key: value' per line.
C10_EXPORT std::string build_info();
C10_EXPORT std::string blas_kernels();
// For tests: the threads, chunks of rows, panels of columns and bands of
// panels into which a product with packed weights is cut
// (third_party/zendnn/panel_cut.h).
C10_EXPORT std::array<int64_t, 4>
cut_of_panels(int64_t rows, int64_t columns, int64_t depth);

// Primitives executed since the start or the last reset, by primitive kind.
C10_EXPORT std::map<std::string, uint64_t> counters();
C10_EXPORT void reset_counters();

// 0: silent; 1: a line for each execution; 2: also for each creation, each
// primitive within a plan's step, and each operator that falls back to torch.
// Returns false for any other level.
C10_EXPORT bool set_verbose(int level);
// The current level: the last one set, or that of the environment (Logs.h).
C10_EXPORT int verbose();

} // namespace at::native::zendnn
