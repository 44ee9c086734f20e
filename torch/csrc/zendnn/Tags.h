// Tags of operators.
#pragma once

#include <ATen/core/enum_tag.h>

namespace at::native::zendnn {

// The tag for operands whose strides a compiler must not change; the weaker one
// where torch (before 2.8) has no other.
template <typename Tag>
constexpr Tag strides_kept() {
  if constexpr (requires { Tag::needs_exact_strides; }) {
    return Tag::needs_exact_strides;
  } else {
    return Tag::needs_fixed_stride_order;
  }
}

} // namespace at::native::zendnn
