#include "windows.h"

#include "strip.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {

bool takes_windows(const Windows& windows) {
  return Strip::fits(windows);
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
