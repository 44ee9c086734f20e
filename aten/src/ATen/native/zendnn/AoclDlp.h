// AMD's AOCL-DLP: matrix products of packed weights, which AMD's ZenDNN calls,
// too. The first call of library() loads it from the folder ZENDNN_AMD_DIR, so
// that one wheel serves machines with it and without it. C functions have the
// same interface in each release; ZenDNN's own, which take C++ containers, do
// not.
#pragma once

#include <c10/macros/Export.h>

#include <array>
#include <cstdint>
#include <string>

namespace at::native::zendnn::aocl {

// What all releases since 5.2 share. Later releases append members to these
// structures; ours have room for them, which is null.
enum class Type : int32_t { none = 0, bfloat16 = 9, float32 = 12 };
enum class Function : int32_t {
  relu = 0,
  gelu_tanh = 2,
  gelu = 3,
  swish = 5,
  tanh = 6,
  sigmoid = 7
};
enum class Operation : int32_t {
  function = 1,
  bias = 2,
  add = 4,
  multiply = 5
};

struct FunctionOf {
  const void* scale = nullptr;
  const float* alpha = nullptr;
  const float* beta = nullptr;
  Function function{};
  Type type = Type::none; // of alpha and beta
};

struct Bias {
  const void* numbers = nullptr;
  Type type = Type::none;
  std::array<const void*, 2> scale_and_zero{};
  int64_t size = 0;
};

struct Matrix {
  const void* numbers = nullptr;
  int64_t row_stride = 0;
  Type type = Type::none;
  const void* scale = nullptr;
};

// What is done to a product before it is written. `rest` is null before a call.
// The place of the error code in it depends on the release: after a call, any
// number but 0 is an error.
struct PostOps {
  const void* scale = nullptr;
  const FunctionOf* functions = nullptr;
  const Bias* bias = nullptr;
  const Matrix* added = nullptr;
  const Matrix* factors = nullptr;
  int64_t size = 0;
  const Operation* operations = nullptr;
  std::array<uint64_t, 16> rest{};
};
constexpr size_t kMostPostOps = 5;

// Bytes of a packed matrix of k x n.
using PackedSize = uint64_t (*)(
    char order,
    char transposed,
    char which,
    int64_t k,
    int64_t n,
    PostOps* none);
using Pack = void (*)(
    char order,
    char transposed,
    char which,
    const void* from,
    void* to,
    int64_t k,
    int64_t n,
    int64_t row_stride,
    PostOps* none);
// c = post-ops(alpha a b + beta c), with a of m x k and b of k x n.
using Multiply = void (*)(
    char order,
    char a_transposed,
    char b_transposed,
    int64_t m,
    int64_t n,
    int64_t k,
    float alpha,
    const void* a,
    int64_t a_row_stride,
    char a_packed,
    const void* b,
    int64_t b_row_stride,
    char b_packed,
    float beta,
    void* c,
    int64_t c_row_stride,
    PostOps* post_ops);

// The functions for one type of operands, by the result's type.
struct Products {
  PackedSize packed_size = nullptr;
  Pack pack = nullptr;
  Multiply to_float32 = nullptr, to_bfloat16 = nullptr;
};

struct Library {
  std::string version, path;
  Products float32, bfloat16;
};

// Null where ZENDNN_AMD_DIR is not set, or where what it names cannot serve,
// which warns once.
C10_EXPORT const Library* library();

} // namespace at::native::zendnn::aocl
