// Measures the machine's memory limit: the best rate, in GB/s, of reading data
// that is in no cache.
//
//     cc -O3 -march=native -fopenmp bandwidth.c -o bandwidth
//     ./bandwidth THREADS SECONDS BYTES
//
// Prints `read RATE`. Each thread adds up its part of BYTES again and again.
// BYTES should be much larger than the last-level cache. The result is the
// fastest pass, because slower ones shared the memory with other programs.

#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t vector __attribute__((vector_size(64)));

enum { SUMS = 8, CHUNK = SUMS * sizeof(vector) };

static volatile uint64_t sink;

static void read_all(const char* data, size_t bytes) {
  vector sums[SUMS] = {0};
  for (size_t at = 0; at < bytes; at += CHUNK) {
    const vector* chunk = (const vector*)(data + at);
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++) {
      sums[i] += chunk[i];
    }
  }
  for (int i = 1; i < SUMS; i++) {
    sums[0] += sums[i];
  }
  sink = sums[0][0];
}

int main(int count, char** arguments) {
  const int threads = count == 4 ? atoi(arguments[1]) : 0;
  const double seconds = count == 4 ? atof(arguments[2]) : 0;
  const double bytes = count == 4 ? atof(arguments[3]) : 0;
  if (threads < 1 || !(seconds > 0) || !(bytes >= CHUNK * (double)threads)) {
    fprintf(
        stderr,
        "error: call it as %s THREADS SECONDS BYTES, with BYTES at least %d "
        "times THREADS\n",
        arguments[0],
        CHUNK);
    return 2;
  }
  const size_t part = (size_t)(bytes / threads) / CHUNK * CHUNK;
  char* data = aligned_alloc(CHUNK, part * threads);
  if (!data) {
    fprintf(stderr, "error: cannot allocate %.0f bytes\n", bytes);
    return 1;
  }
  // Each thread first writes the pages that it will read, so that they are
  // placed in memory near its core.
#pragma omp parallel num_threads(threads)
  memset(data + part * omp_get_thread_num(), 1, part);
  const double end = omp_get_wtime() + seconds;
  double best = 0;
  do {
    const double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
    read_all(data + part * omp_get_thread_num(), part);
    const double rate = (double)(part * threads) / (omp_get_wtime() - start);
    best = rate > best ? rate : best;
  } while (omp_get_wtime() < end);
  printf("read %.2f\n", best / 1e9);
  free(data);
  return 0;
}
