/* BLIS as ZenDNN's GEMM fallback: single precision, column-major, as in the
   reference BLAS. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* c = alpha * op(a) @ op(b) + beta * c; op transposes when its flag is not 0.
   After op, a is m x k, b is k x n and c is m x n. Uses as many threads as
   OpenMP would give a parallel region at this place. */
void zendnn_blis_sgemm(
    int transpose_a,
    int transpose_b,
    long m,
    long n,
    long k,
    float alpha,
    const float* a,
    long lda,
    const float* b,
    long ldb,
    float beta,
    float* c,
    long ldc);

/* y += alpha * x over n elements. */
void zendnn_blis_saxpy(
    long n,
    float alpha,
    const float* x,
    long incx,
    float* y,
    long incy);

const char* zendnn_blis_version(void);

/* The kernel set that BLIS uses on this CPU, such as 'skx' or 'zen3'. */
const char* zendnn_blis_kernels(void);

#ifdef __cplusplus
}
#endif
