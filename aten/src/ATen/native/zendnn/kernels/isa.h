// Which instruction sets ZenDNN uses on this CPU.
#pragma once

#include <oneapi/zendnn/zendnn.h>

namespace at::native::zendnn::kernels {

// Whether libzendnn would use an instruction set, and those it includes: this
// CPU has it, and ZENDNN_MAX_CPU_ISA allows it.
inline bool uses(zendnn_cpu_isa_t isa) {
  static const unsigned used = zendnn_get_effective_cpu_isa();
  return (used & isa) == isa;
}

} // namespace at::native::zendnn::kernels
