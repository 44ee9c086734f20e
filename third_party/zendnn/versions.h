// Where oneDNN's internal headers differ by version: each difference, with the
// version that made it. The default is 3.7.2; tools/zendnnify/rules/locks lists
// the others.
#pragma once

#include "common/primitive_attr.hpp"
#include "cpu/x64/injectors/jit_uni_postops_injector.hpp"
#include "cpu/x64/jit_generator.hpp"
#include "oneapi/zendnn/zendnn_version.h"

#include <functional>
#include <memory>

#define ZENDNN_SINCE(major, minor)                       \
  (ZENDNN_VERSION_MAJOR * 1000 + ZENDNN_VERSION_MINOR >= \
   (major) * 1000 + (minor))

namespace zendnn::impl::cpu::x64 {

// 3.8 renames the assembler.
#if !ZENDNN_SINCE(3, 8)
using jit_generator_t = jit_generator;
#endif

// Since 3.14, a primitive cannot change its engine.
#if ZENDNN_SINCE(3, 14)
using const_engine_t = const engine_t;
#else
using const_engine_t = engine_t;
#endif

// A kernel's chain of post-ops. `add_previous` is the code of the sum post-op,
// which 3.14 brings itself. There, the instruction set is the assembler's.
#if ZENDNN_SINCE(3, 14)
using post_ops_injector_t = injector::jit_uni_postops_injector_t<Xbyak::Zmm>;
#else
using post_ops_injector_t =
    injector::jit_uni_postops_injector_base_t<Xbyak::Zmm>;
#endif

inline std::unique_ptr<post_ops_injector_t> inject_post_ops(
    jit_generator_t* kernel,
    [[maybe_unused]] cpu_isa_t isa,
    const post_ops_t& post_ops,
    const binary_injector::static_params_t& operands,
    [[maybe_unused]] const std::function<void()>& add_previous) {
#if ZENDNN_SINCE(3, 14)
  return std::unique_ptr<post_ops_injector_t>(
      new post_ops_injector_t(kernel, post_ops, operands, /*inject_sum=*/true));
#else
  std::unique_ptr<post_ops_injector_t> result(
      post_ops_injector_t::create(kernel, isa, post_ops, operands));
  if (post_ops.find(primitive_kind::sum) >= 0) {
    result->set_lambda_injector(primitive_kind::sum, add_previous);
  }
  return result;
#endif
}

} // namespace zendnn::impl::cpu::x64
