/* The two CBLAS functions that ZenDNN's GEMM fallback calls, mapped to BLIS
   under names that cannot collide with another BLAS in the process. */
#pragma once

#include "third_party/zendnn/blis_gemm.h"

typedef enum { CblasColMajor = 102 } CBLAS_LAYOUT;
typedef enum { CblasNoTrans = 111, CblasTrans = 112 } CBLAS_TRANSPOSE;

#define cblas_sgemm(                                              \
    layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) \
  zendnn_blis_sgemm(                                              \
      (ta) == CblasTrans,                                         \
      (tb) == CblasTrans,                                         \
      m,                                                          \
      n,                                                          \
      k,                                                          \
      alpha,                                                      \
      a,                                                          \
      lda,                                                        \
      b,                                                          \
      ldb,                                                        \
      beta,                                                       \
      c,                                                          \
      ldc)
#define cblas_saxpy(n, alpha, x, incx, y, incy) \
  zendnn_blis_saxpy(n, static_cast<float>(alpha), x, incx, y, incy)
