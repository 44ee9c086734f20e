// The CPU: what it is, which instructions ZenDNN may use, and its caches. Where
// ZENDNN_EMULATE names another CPU, this describes that one.
#pragma once

#include <ATen/native/zendnn/InstructionSets.h>
#include <c10/macros/Export.h>

#include <array>
#include <cstdint>
#include <string>

namespace at::native::zendnn {

// An Isa is a bit mask, which contains the masks of all sets that it includes.
// libzendnn may report masks that are not enumerators, such as AVX10's.
constexpr bool includes(Isa set, Isa part) {
  const auto bits = static_cast<uint16_t>(part);
  return (static_cast<uint16_t>(set) & bits) == bits;
}

// What a hypervisor hides is 0.
struct Cpu {
  std::string vendor, name, signature; // which packs family, model and stepping
  unsigned family = 0, model = 0;
  Isa isa = Isa::none;          // all that it has and that is allowed
  const char* kernels = "none"; // of ours that run: avx2 or avx512
  bool clflushopt = false;
  std::array<int64_t, 3> caches{}; // L1d, L2 and L3, in bytes
  unsigned cores = 0, cores_per_l3 = 0;
  unsigned nodes = 1;      // NUMA nodes with CPUs
  std::string emulated_on; // the name of the real CPU; empty for that itself
};

// Read once, at the first call.
C10_EXPORT const Cpu& this_cpu();

// The NUMA node that this thread runs on.
unsigned node_of_thread();

// Whether the caller's threads run on several NUMA nodes. On an emulated
// topology: whether that has several.
C10_EXPORT bool threads_span_nodes();

inline bool uses(Isa isa) {
  static const Isa all = this_cpu().isa;
  return includes(all, isa);
}

// For people, and in files of tuning choices.
C10_EXPORT const char* name_of(Isa isa);

} // namespace at::native::zendnn
