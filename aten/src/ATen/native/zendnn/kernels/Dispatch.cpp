// Each kernel is compiled once per instruction set, in a namespace of that
// name. The public function calls the best one for this CPU.
#include "argmax.h"
#include "attention.h"
#include "avg_pool.h"
#include "batch_norm.h"
#include "depthwise.h"
#include "dot.h"
#include "elementwise.h"
#include "embedding.h"
#include "group_norm.h"
#include "indexing.h"
#include "integers.h"
#include "max_pool.h"
#include "memory.h"
#include "normalization.h"
#include "random.h"
#include "resampling.h"
#include "rope.h"
#include "sum.h"
#include "winograd.h"

#include <ATen/native/zendnn/Cpu.h>

#include <stdexcept>
#include <string>

namespace at::native::zendnn::kernels {

void refuse(DType dtype) {
  throw std::invalid_argument(
      std::string("a kernel does not take ") +
      kDTypeNames[static_cast<size_t>(dtype)]);
}

#define ZENDNN_DECLARE(isa, Result, name, Args) \
  namespace isa {                               \
  Result name(const Args& args);                \
  }

#define ZENDNN_KERNEL(Result, name, Args)                             \
  ZENDNN_DECLARE(avx2, Result, name, Args)                            \
  ZENDNN_DECLARE(avx512, Result, name, Args)                          \
  Result name(const Args& args) {                                     \
    return uses(Isa::avx512) ? avx512::name(args) : avx2::name(args); \
  }

// Kernels with bfloat16 products have more variants.
#define ZENDNN_BF16_KERNEL(Result, name, Args)                \
  ZENDNN_DECLARE(avx2, Result, name, Args)                    \
  ZENDNN_DECLARE(avx512, Result, name, Args)                  \
  ZENDNN_DECLARE(avx512_bf16, Result, name, Args)             \
  ZENDNN_DECLARE(amx, Result, name, Args)                     \
  Result name(const Args& args) {                             \
    return uses(Isa::amx)           ? amx::name(args)         \
           : uses(Isa::avx512_bf16) ? avx512_bf16::name(args) \
           : uses(Isa::avx512)      ? avx512::name(args)      \
                                    : avx2::name(args);            \
  }

ZENDNN_BF16_KERNEL(int64_t, attention_scratch_bytes, AttentionArgs)
ZENDNN_BF16_KERNEL(void, attention, AttentionArgs)
ZENDNN_KERNEL(int64_t, attention_backward_scratch_bytes, AttentionBackwardArgs)
ZENDNN_KERNEL(void, attention_backward, AttentionBackwardArgs)
ZENDNN_KERNEL(void, layer_norm, NormArgs)
ZENDNN_KERNEL(void, rms_norm, NormArgs)
ZENDNN_KERNEL(void, group_norm, GroupNormArgs)
ZENDNN_KERNEL(void, batch_norm, BatchNormArgs)
ZENDNN_KERNEL(void, batch_norm_training, BatchNormTrainingArgs)
ZENDNN_KERNEL(void, batch_norm_backward, BatchNormBackwardArgs)
ZENDNN_KERNEL(bool, takes_windows, Windows)
ZENDNN_KERNEL(bool, depthwise, DepthwiseArgs)
ZENDNN_KERNEL(void, dot, DotArgs)
ZENDNN_KERNEL(void, max_pool, MaxPoolArgs)
ZENDNN_KERNEL(void, avg_pool, AvgPoolArgs)
ZENDNN_KERNEL(void, find_lines, LinesArgs)
ZENDNN_KERNEL(void, resample, ResampleArgs)
ZENDNN_KERNEL(void, rope, RopeArgs)
ZENDNN_KERNEL(void, softmax, SoftmaxArgs)
ZENDNN_KERNEL(void, logsumexp, SoftmaxArgs)
ZENDNN_KERNEL(void, reduce_sum, SumArgs)
ZENDNN_KERNEL(void, argmax, ArgmaxArgs)
ZENDNN_KERNEL(void, pair, PairArgs)
ZENDNN_KERNEL(void, cumsum, CumsumArgs)
ZENDNN_KERNEL(void, integer_sum, IntegerSumArgs)
ZENDNN_KERNEL(void, eltwise, EltwiseArgs)
ZENDNN_KERNEL(void, pointwise, PointwiseArgs)
ZENDNN_KERNEL(int, bernoulli, BernoulliArgs)
ZENDNN_KERNEL(void, copy_strided, CopyArgs)
ZENDNN_KERNEL(void, triangle, TriangleArgs)
ZENDNN_KERNEL(bool, index, IndexArgs)
ZENDNN_KERNEL(bool, scatter, ScatterArgs)
ZENDNN_KERNEL(bool, gather_pairs, GatherPairsArgs)
ZENDNN_KERNEL(bool, embedding_bag, EmbeddingBag)
ZENDNN_KERNEL(bool, embedding_bags, EmbeddingBagsArgs)
ZENDNN_KERNEL(bool, pairwise_dot, PairwiseDotArgs)
ZENDNN_KERNEL(int64_t, winograd_packed_bytes, WinogradWeights)
ZENDNN_KERNEL(void, winograd_pack, WinogradWeights)
ZENDNN_KERNEL(bool, winograd_takes, WinogradArgs)
ZENDNN_KERNEL(int64_t, winograd_scratch_bytes, WinogradArgs)
ZENDNN_KERNEL(void, winograd, WinogradArgs)

#undef ZENDNN_BF16_KERNEL
#undef ZENDNN_KERNEL
#undef ZENDNN_DECLARE

} // namespace at::native::zendnn::kernels
