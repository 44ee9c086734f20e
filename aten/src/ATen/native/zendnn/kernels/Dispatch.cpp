// Each kernel is compiled once for each instruction set, in a namespace of its
// name. The public function calls the one that this CPU runs best.
#include "attention.h"
#include "elementwise.h"
#include "embedding.h"
#include "group_norm.h"
#include "memory.h"
#include "normalization.h"
#include "resampling.h"
#include "select.h"
#include "winograd.h"

#include <strings.h>

#include <cstdlib>

namespace at::native::zendnn::kernels {
namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool starts_with(const char* text, const char* prefix, size_t size) {
  return strncasecmp(text, prefix, size) == 0;
}

// The names are libzendnn's.
bool avx512_allowed() {
  const char* limit = std::getenv("ZENDNN_MAX_CPU_ISA");
  return !limit || !*limit ||
         !(starts_with(limit, "avx2", 4) || starts_with(limit, "sse", 3) ||
           strcasecmp(limit, "avx") == 0);
}

bool use_avx512() {
  static const bool use = has_avx512() && avx512_allowed();
  return use;
}

} // namespace

const char* isa() {
  return use_avx512() ? "avx512" : has_avx2() ? "avx2" : "none";
}

#define ZENDNN_KERNEL(Result, name, Args)                        \
  namespace avx2 {                                               \
  Result name(const Args& args);                                 \
  }                                                              \
  namespace avx512 {                                             \
  Result name(const Args& args);                                 \
  }                                                              \
  Result name(const Args& args) {                                \
    return use_avx512() ? avx512::name(args) : avx2::name(args); \
  }

ZENDNN_KERNEL(int64_t, attention_scratch_bytes, AttentionArgs)
ZENDNN_KERNEL(void, attention, AttentionArgs)
ZENDNN_KERNEL(int64_t, attention_backward_scratch_bytes, AttentionBackwardArgs)
ZENDNN_KERNEL(void, attention_backward, AttentionBackwardArgs)
ZENDNN_KERNEL(void, layer_norm, NormArgs)
ZENDNN_KERNEL(void, rms_norm, NormArgs)
ZENDNN_KERNEL(void, group_norm, GroupNormArgs)
ZENDNN_KERNEL(void, resample, ResampleArgs)
ZENDNN_KERNEL(void, softmax, SoftmaxArgs)
ZENDNN_KERNEL(void, mean, MeanArgs)
ZENDNN_KERNEL(void, eltwise, EltwiseArgs)
ZENDNN_KERNEL(void, binary, BinaryArgs)
ZENDNN_KERNEL(void, where, WhereArgs)
ZENDNN_KERNEL(void, copy_strided, CopyArgs)
ZENDNN_KERNEL(void, convert, ConvertArgs)
ZENDNN_KERNEL(bool, gather_pairs, GatherPairsArgs)
ZENDNN_KERNEL(bool, embedding, EmbeddingArgs)
ZENDNN_KERNEL(bool, embedding_bag, EmbeddingBag)
ZENDNN_KERNEL(bool, embedding_bags, EmbeddingBagsArgs)
ZENDNN_KERNEL(bool, pairwise_dot, PairwiseDotArgs)
ZENDNN_KERNEL(int64_t, winograd_packed_bytes, WinogradWeights)
ZENDNN_KERNEL(void, winograd_pack, WinogradWeights)
ZENDNN_KERNEL(bool, winograd_takes, WinogradArgs)
ZENDNN_KERNEL(void, winograd, WinogradArgs)

#undef ZENDNN_KERNEL

namespace avx2 {
int64_t winograd_scratch_bytes(const WinogradArgs& args, int threads);
}
namespace avx512 {
int64_t winograd_scratch_bytes(const WinogradArgs& args, int threads);
}
int64_t winograd_scratch_bytes(const WinogradArgs& args, int threads) {
  return use_avx512() ? avx512::winograd_scratch_bytes(args, threads)
                      : avx2::winograd_scratch_bytes(args, threads);
}

} // namespace at::native::zendnn::kernels
