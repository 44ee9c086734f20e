// Random numbers, as torch's own generator makes them.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Words of the state of the Mersenne Twister MT19937 (M. Matsumoto and
// T. Nishimura, 1998).
constexpr int kStateWords = 624;

// Writes 1 with probability p and 0 otherwise: for each element two random
// words of 32 bits, the first one on top, of which the lower 53 bits count.
struct BernoulliArgs {
  uint32_t* state = nullptr; // kStateWords, which change
  int used = 0;              // how many of them have been drawn already
  void* out = nullptr;
  int64_t size = 0;
  double p = 0; // from 0 to 1
  DType dtype = DType::float32;
};

// Returns how many words of the state are used now.
int bernoulli(const BernoulliArgs& args);

} // namespace at::native::zendnn::kernels
