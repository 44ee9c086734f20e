#include "third_party/zendnn/blis_gemm.h"
#include "third_party/zendnn/emulation.h"

#if __has_include(<blis/blis.h>)
#include <blis/blis.h>
#else
#include <blis.h> // of AOCL-BLAS
#endif
#include <omp.h>
#include <oneapi/zendnn/zendnn_types.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

// Whether this BLIS has kernels for Zen 4, as AOCL-BLAS has.
template <class Architecture>
constexpr bool knows_zen4() {
  return requires { Architecture::BLIS_ARCH_ZEN4; };
}

// The kernels that BLIS should use where it would not find them itself, or -1.
// BLIS 0.9 knows Zen to Zen 3 and treats newer CPUs as generic. Its Skylake-X
// kernels suit the AVX-512 units of Zen 4 and Zen 5.
int preferred_kernels() {
  const auto emulated = zendnn_emulated()->isa;
  if (emulated != 0 && emulated < zendnn_cpu_isa_avx512_core) {
    const bool runs = emulated >= zendnn_cpu_isa_avx2 &&
                      __builtin_cpu_supports("avx2") &&
                      __builtin_cpu_supports("fma");
    return runs ? BLIS_ARCH_ZEN2 : -1;
  }
  return !knows_zen4<arch_t>() && __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl")
             ? BLIS_ARCH_SKX
             : -1;
}

// BLIS reads the choice, as a number, from the environment during
// initialisation. This runs when the library is loaded, since later changes of
// the environment would race with other threads. A user's own choice takes
// precedence.
bool initialize() {
  constexpr const char* variable = "BLIS_ARCH_TYPE";
  const auto kernels = preferred_kernels();
  const bool ours = kernels >= 0 && std::getenv(variable) == nullptr;
  if (ours) {
    setenv(variable, std::to_string(kernels).c_str(), 0);
  }
  bli_init();
  if (ours) {
    unsetenv(variable);
  }
  return true;
}

const bool initialized = initialize();

// The number of threads that OpenMP guarantees: BLIS ends the process when it
// gets fewer than requested. By default it also starts threads inside a
// parallel region.
int threads_to_get() {
  return omp_in_parallel() || omp_get_dynamic()
             ? 1
             : std::min(omp_get_max_threads(), omp_get_thread_limit());
}

// BLIS describes a matrix by two strides; transposition swaps them.
struct Strides {
  inc_t row, col;
};

Strides strides(int transpose, long leading) {
  return transpose ? Strides{leading, 1} : Strides{1, leading};
}

} // namespace

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
    long ldc) {
  rntm_t runtime;
  bli_rntm_init(&runtime);
  bli_rntm_set_num_threads(threads_to_get(), &runtime);
  const auto sa = strides(transpose_a, lda), sb = strides(transpose_b, ldb);
  bli_sgemm_ex(
      BLIS_NO_TRANSPOSE,
      BLIS_NO_TRANSPOSE,
      m,
      n,
      k,
      &alpha,
      const_cast<float*>(a),
      sa.row,
      sa.col,
      const_cast<float*>(b),
      sb.row,
      sb.col,
      &beta,
      c,
      1,
      ldc,
      nullptr,
      &runtime);
}

void zendnn_blis_saxpy(
    long n,
    float alpha,
    const float* x,
    long incx,
    float* y,
    long incy) {
  bli_saxpyv(
      BLIS_NO_CONJUGATE, n, &alpha, const_cast<float*>(x), incx, y, incy);
}

const char* zendnn_blis_version(void) {
  return bli_info_get_version_str();
}

const char* zendnn_blis_kernels(void) {
  return bli_arch_string(bli_arch_query_id());
}
