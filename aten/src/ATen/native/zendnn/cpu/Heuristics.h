// Problems that ZenDNN supports but leaves to torch's own kernels, since these
// are as fast or faster, some only on some CPUs. Each family of operators has a
// function that returns the reason. Sizes that decide are rows of the table of
// thresholds; the rest was measured with benchmarks.operations.
#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Thresholds.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/native/zendnn/kernels/elementwise.h>
#include <torch/version.h>

#include <algorithm>

namespace at::native::zendnn::cpu {

// Whether torch may multiply float32 in bfloat16, as its own kernels then do,
// after torch.set_float32_matmul_precision("medium") or its successors.
enum class Multiplies : uint8_t { matrices, images, recurrences };
inline bool may_round(ScalarType dtype, Multiplies what) {
  if (dtype != kFloat) {
    return false;
  }
  const auto& context = at::globalContext();
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
  const auto op = what == Multiplies::matrices ? at::Float32Op::MATMUL
                  : what == Multiplies::images ? at::Float32Op::CONV
                                               : at::Float32Op::RNN;
  return context.float32Precision(at::Float32Backend::MKLDNN, op) ==
         at::Float32Precision::BF16;
#elif TORCH_VERSION_MINOR == 9
  const auto* op = what == Multiplies::matrices ? "matmul"
                   : what == Multiplies::images ? "conv"
                                                : "rnn";
  return context.float32Precision("mkldnn", op) == "bf16";
#else
  return what == Multiplies::matrices &&
         context.float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
#endif
}

// Whether each product of (m, k) and (k, n) is so small that torch's plain
// loops end before a kernel for blocks has begun.
inline bool are_tiny(int64_t batch, int64_t m, int64_t k, int64_t n) {
  return batch > 1 && m * k * n < value_of(Threshold::tiny_product);
}

// A batch of products of (m, k) and (k, n), with or without an addend.
inline Reason why_leave_product(
    ScalarType dtype,
    int64_t batch,
    int64_t m,
    int64_t k,
    int64_t n,
    bool added) {
  // Below this many multiply-adds the call's overhead outweighs its speed.
  // torch's overhead is lowest for two float32 matrices.
  const auto smallest = value_of(
      added                             ? Threshold::product_with_addend
      : batch > 1 || dtype == kBFloat16 ? Threshold::product_elsewhere
                                        : Threshold::product);
  if (m == 1 || n == 1) {
    return "a matrix and a vector, which memory bounds";
  }
  if (batch * m * n * k < smallest || are_tiny(batch, m, k, n)) {
    return "a product too small to gain";
  }
  if (may_round(dtype, Multiplies::matrices)) {
    return why::kRounds;
  }
  if (dtype == kFloat) {
    // MKL's AVX2 kernels leave nothing to gain. In outer products, which have
    // no sums, MKL keeps the sign of zeros.
    return !uses(Isa::avx512) ? why::kNoGain
           : k == 1 && !added ? "an outer product"
                              : nullptr;
  }
  // On AMX, torch's newer oneDNN is faster for large results and for odd
  // depths.
  return uses(Isa::amx) &&
                 (m * n >= value_of(Threshold::product_result) ||
                  (k % 2 == 1 && k > value_of(Threshold::product_depth) &&
                   batch * m >= value_of(Threshold::product_rows)))
             ? why::kNoGain
             : nullptr;
}

// LSTMs and GRUs, which are repeated products of few rows.
inline Reason why_leave_recurrence(ScalarType dtype) {
  return dtype == kFloat && !uses(Isa::avx512)       ? why::kNoGain
         : may_round(dtype, Multiplies::recurrences) ? why::kRounds
                                                     : nullptr;
}

// Whether torch multiplies weights as they lie, image by image, where it brings
// all others into blocks, too: float32 of one small image, and kernels of one
// point on one thread.
inline bool torch_reads_plain(
    const Tensor& input,
    const Tensor& weight,
    bool is_point,
    int64_t groups) {
  constexpr int64_t kManyImages = 16, kSmallImage = 20480, kSmallKernel = 3;
  if (input.scalar_type() != kFloat || groups > 1) {
    return false;
  }
  const auto batch = input.size(0), dim = input.dim();
  if (is_point && batch < kManyImages && at::get_num_threads() == 1) {
    return true;
  }
  // torch counts no fourth dimension of an image.
  const auto counted = input.sizes().slice(0, std::min<int64_t>(dim, 4));
  return batch == 1 && c10::multiply_integers(counted) <= kSmallImage &&
         (dim == 3 || weight.size(dim - 1) <= kSmallKernel ||
          weight.size(dim - 2) <= kSmallKernel);
}

// Whether each weight is multiplied too rarely to be brought into a block.
inline bool are_few_uses(int64_t uses) {
  return uses < value_of(Threshold::weight_uses);
}

// Whether the calls of reorders and the memory around them outlast so many
// multiply-adds.
inline bool is_little_work(int64_t work) {
  return work < value_of(Threshold::convolution_work);
}

inline Reason why_leave_convolution(
    ScalarType dtype,
    bool transposed,
    int64_t channels_in_group) {
  // ZenDNN refuses problems on AMX for which torch's newer oneDNN has kernels.
  constexpr int64_t kFewChannels = 4;
  return dtype == kBFloat16 && uses(Isa::amx) &&
                 (transposed ||
                  (channels_in_group > 1 && channels_in_group < kFewChannels))
             ? why::kNoGain
         : may_round(dtype, Multiplies::images) ? why::kRounds
                                                : nullptr;
}

// Attention of tensors (batch, heads, time, size).
inline Reason why_leave_attention(const Tensor& query) {
  return query.scalar_type() == kFloat && query.size(2) == 1 &&
                 !uses(Isa::avx512)
             ? why::kNoGain
         : may_round(query.scalar_type(), Multiplies::matrices) ? why::kRounds
                                                                : nullptr;
}

inline Reason why_leave_attention_gradient(
    const Tensor& query,
    const Tensor& key) {
  // From this many on, tiles are faster than vectors.
  return query.scalar_type() == kBFloat16 && uses(Isa::amx) &&
                 std::min(query.size(2), key.size(2)) >=
                     value_of(Threshold::attention_gradient_length)
             ? why::kNoGain
             : nullptr;
}

// Elementwise functions.
inline Reason why_leave_function(kernels::Eltwise function, ScalarType dtype) {
  switch (function) {
    case kernels::Eltwise::tanh:
      return dtype == kFloat ? why::kNoGain : nullptr;
    case kernels::Eltwise::gelu: // uses a lookup table
      return uses(Isa::avx512) ? nullptr : why::kNoGain;
    default:
      return nullptr;
  }
}

// Without AVX-512, bfloat16 gains nothing.
inline Reason why_leave_batch_norm(ScalarType dtype) {
  return dtype == kBFloat16 && !uses(Isa::avx512) ? why::kNoGain : nullptr;
}

// Softmax, or its logarithm, over a valid dimension of x.
inline Reason why_leave_softmax(const Tensor& x, int64_t dim, bool log) {
  if (x.scalar_type() != kBFloat16) {
    return nullptr;
  }
  // Our kernel computes the powers of long rows and columns twice.
  const auto size = x.size(dim);
  const bool rows = dim == -1 || dim == x.dim() - 1;
  const bool leaves =
      !log &&
      size >
          value_of(rows ? Threshold::softmax_row : Threshold::softmax_column);
  return leaves ? "rows or columns of a size at which torch is as fast"
                : nullptr;
}

} // namespace at::native::zendnn::cpu
