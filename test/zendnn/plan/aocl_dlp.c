/* A stand-in for AOCL-DLP with the functions that plans call, in plain loops. A
 * packed matrix has its rows in reverse order, so that one that is not packed
 * gives wrong results. Macros break it:
 *   WRONG    results are wrong
 *   FAILING  products report an error and compute nothing
 *   LACKING  a function is missing
 *   MINOR    of the version, 3 by default */
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef MINOR
#define MINOR 3
#endif

enum { BFLOAT16 = 9, FLOAT32 = 12 };
enum { FUNCTION = 1, BIAS = 2, ADD = 4, MULTIPLY = 5 };
enum { RELU = 0, GELU_TANH = 2, GELU = 3, SWISH = 5, TANH = 6, SIGMOID = 7 };

struct function {
  void *scale, *alpha, *beta;
  int kind, type;
};
struct bias {
  void* numbers;
  int type;
  void *scale, *zero;
};
struct matrix {
  void* numbers;
  int64_t step;
  int type;
  void* scale;
};
struct post_ops {
  void* scale;
  struct function* functions;
  struct bias* bias;
  struct matrix *added, *factors;
  int64_t size;
  int* operations;
  void* groups[2];
  void* quantization[8]; /* 5.2 has none, and its error lies here */
  int64_t functions_size;
  int error;
};

static float load(const void* from, int64_t i, int type) {
  if (type == FLOAT32) {
    return ((const float*)from)[i];
  }
  uint32_t bits = (uint32_t)((const uint16_t*)from)[i] << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static void store(void* to, int64_t i, int type, float number) {
  if (type == FLOAT32) {
    ((float*)to)[i] = number;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  bits += 0x7FFF + (bits >> 16 & 1);
  ((uint16_t*)to)[i] = (uint16_t)(bits >> 16);
}

static float of(const struct function* f, float x) {
  switch (f->kind) {
    case RELU:
      return x < 0 ? 0 : x;
    case GELU_TANH:
      return 0.5F * x * (1 + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    case GELU:
      return 0.5F * x * (1 + erff(0.70710678F * x));
    case SWISH:
      return x / (1 + expf(-*(float*)f->alpha * x));
    case TANH:
      return tanhf(x);
    case SIGMOID:
      return 1 / (1 + expf(-x));
  }
  return NAN;
}

static void pack(char transposed, const void* from, void* to, int64_t k, int64_t n, int64_t step,
                 int type) {
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t at = transposed == 't' ? j * step + i : i * step + j;
      store(to, (k - 1 - i) * n + j, type, load(from, at, type));
    }
  }
}

static void multiply(int64_t m, int64_t n, int64_t k, const void* a, int64_t lda, const void* b,
                     char packed, float beta, void* c, int64_t ldc, struct post_ops* post, int type,
                     int result) {
#ifdef FAILING
  post->error = 4;
  return;
#endif
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = beta == 0 ? 0 : beta * load(c, i * ldc + j, result);
      for (int64_t p = 0; p < k; ++p) {
        int64_t row = packed == 'r' ? k - 1 - p : p;
        sum += load(a, i * lda + p, type) * load(b, row * n + j, type);
      }
      struct function* function = post->functions;
      struct matrix *added = post->added, *factor = post->factors;
      for (int64_t o = 0; o < post->size; ++o) {
        switch (post->operations[o]) {
          case FUNCTION:
            sum = of(function++, sum);
            break;
          case BIAS:
            sum += load(post->bias->numbers, j, post->bias->type);
            break;
          case ADD:
            sum += load(added->numbers, i * added->step + j, added->type);
            ++added;
            break;
          case MULTIPLY:
            sum *= load(factor->numbers, i * factor->step + j, factor->type);
            ++factor;
            break;
        }
      }
#ifdef WRONG
      sum += i == m - 1 && j == n - 1;
#endif
      store(c, i * ldc + j, result, sum);
    }
  }
}

void dlp_version_query(int* major, int* minor, int* patch) {
  *major = 5;
  *minor = MINOR;
  *patch = 0;
}

#define PACKING(NAME, BYTES, TYPE)                                                               \
  uint64_t aocl_get_reorder_buf_size_##NAME(char order, char transposed, char which, int64_t k, \
                                            int64_t n, struct post_ops* none) {                  \
    return order == 'r' && which == 'B' && !none ? BYTES * k * n : 0;                            \
  }                                                                                              \
  void aocl_reorder_##NAME(char order, char transposed, char which, const void* from, void* to,  \
                           int64_t k, int64_t n, int64_t step, struct post_ops* none) {          \
    pack(transposed, from, to, k, n, step, TYPE);                                                \
  }
#define PRODUCT(NAME, TYPE, RESULT)                                                               \
  void aocl_gemm_##NAME(char order, char a_transposed, char b_transposed, int64_t m, int64_t n,   \
                        int64_t k, float alpha, const void* a, int64_t lda, char a_packed,        \
                        const void* b, int64_t ldb, char b_packed, float beta, void* c,           \
                        int64_t ldc, struct post_ops* post) {                                     \
    multiply(m, n, k, a, lda, b, b_packed, beta, c, ldc, post, TYPE, RESULT);                     \
  }

PACKING(f32f32f32of32, 4, FLOAT32)
PACKING(bf16bf16f32of32, 2, BFLOAT16)
PRODUCT(f32f32f32of32, FLOAT32, FLOAT32)
PRODUCT(bf16bf16f32of32, BFLOAT16, FLOAT32)
#ifndef LACKING
PRODUCT(bf16bf16f32obf16, BFLOAT16, BFLOAT16)
#endif
