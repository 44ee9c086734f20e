// Measures the machine's compute limit: the best rate, in billions of
// operations per second, of multiply-adds between registers. A multiply-add
// counts as two.
//
//     cc -O3 -march=native -ffp-contract=fast -fopenmp peak.c -o peak
//     ./peak THREADS SECONDS
//
// Prints `fp32 RATE`. Also prints `bf16 RATE` if AVX-512 can multiply pairs of
// bfloat16 and add them up in float, and `int8 RATE` if VNNI can multiply
// groups of four bytes and add them up in int32 (a matrix unit such as AMX is
// not measured). Each takes SECONDS. The result is the fastest of many short
// runs, because slower ones shared their cores with other programs.

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__AVX512F__)
#define BYTES 64
#define EACH_SUM(DO) EACH_OF_12(DO) EACH_OF_12_MORE(DO)
#elif defined(__AVX__)
#define BYTES 32
#define EACH_SUM(DO) EACH_OF_12(DO)
#else
#define BYTES 16
#define EACH_SUM(DO) EACH_OF_12(DO)
#endif

// Independent sums. There must be more than the number of units times their
// latency in cycles, but few enough for the registers (32 with AVX-512,
// otherwise 16). Each is a variable of its own, so that it stays in a register.
#define EACH_OF_12(DO) \
  DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define EACH_OF_12_MORE(DO) \
  DO(12)                    \
  DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23)
#define COUNT(i) +1
#define DECLARE(i) vector sum##i = a * (float)(i);
#define COLLECT(i) total += sum##i;

typedef float vector __attribute__((vector_size(BYTES)));

enum {
  SUMS = 0 EACH_SUM(COUNT),
  STEPS = 1 << 21,
  LANES = BYTES / sizeof(float)
};

#define DEFINE_KERNEL(NAME, STEP)              \
  static float NAME(vector a, vector b) {      \
    EACH_SUM(DECLARE)                          \
    for (int step = 0; step < STEPS; step++) { \
      EACH_SUM(STEP)                           \
    }                                          \
    vector total = a;                          \
    EACH_SUM(COLLECT)                          \
    return total[0];                           \
  }

#define FP32_STEP(i) sum##i = sum##i * a + b;
DEFINE_KERNEL(fp32, FP32_STEP)

#if defined(__AVX512BF16__)
#define BF16_STEP(i) \
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum##i) : "v"(a), "v"(b));
DEFINE_KERNEL(bf16, BF16_STEP)
#endif

// Written in assembly, because compilers copy the sum of the intrinsic to
// another register and back, which halves the rate.
#if defined(__AVX512VNNI__)
#define INT8_STEP(i) \
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum##i) : "v"(a), "v"(b));
#elif defined(__AVXVNNI__)
#define INT8_STEP(i) \
  __asm__("{vex} vpdpbusd %2, %1, %0" : "+x"(sum##i) : "x"(a), "x"(b));
#endif
#ifdef INT8_STEP
DEFINE_KERNEL(int8, INT8_STEP)
#endif

static volatile float sink;

static void measure(
    const char* name,
    float (*kernel)(vector, vector),
    double operations_a_lane,
    int threads,
    double seconds) {
  // The value comes from a volatile variable, so that the compiler cannot
  // compute the sums itself. With 0.5 the sums stay small.
  volatile float half = 0.5F;
  vector a = (vector){} + half;
  const double end = omp_get_wtime() + seconds;
  double best = 0;
  do {
    const double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
    sink = kernel(a, a);
    const double rate = operations_a_lane * LANES * SUMS * STEPS * threads /
                        (omp_get_wtime() - start);
    best = rate > best ? rate : best;
  } while (omp_get_wtime() < end);
  printf("%s %.1f\n", name, best / 1e9);
}

int main(int count, char** arguments) {
  const int threads = count == 3 ? atoi(arguments[1]) : 0;
  const double seconds = count == 3 ? atof(arguments[2]) : 0;
  if (threads < 1 || !(seconds > 0)) {
    fprintf(
        stderr,
        "error: call it as %s THREADS SECONDS, both above zero\n",
        arguments[0]);
    return 2;
  }
  measure("fp32", fp32, 2, threads, seconds);
#if defined(__AVX512BF16__)
  measure("bf16", bf16, 4, threads, seconds);
#endif
#ifdef INT8_STEP
  measure("int8", int8, 8, threads, seconds);
#endif
  return 0;
}
