// What this build of ZenDNN is and what it has done.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace at::native::zendnn {

std::string version();
// Compiler, flags and sources, one 'key: value' a line.
std::string build_info();
std::string cpu_isa();
std::string blas_kernels();

// Primitives executed since the start or the last reset, by primitive kind.
std::map<std::string, uint64_t> counters();
void reset_counters();

// 0: silent; 1: a line for each execution; 2: for each creation as well.
// Returns false for any other level.
bool set_verbose(int level);

} // namespace at::native::zendnn
