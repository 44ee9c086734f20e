// Random numbers of torch's own generator.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Words of the state of the Mersenne Twister MT19937 (M. Matsumoto and
// T. Nishimura, 1998).
constexpr int kStateWords = 624;

// Writes 1 with probability p, otherwise 0. Each element uses the lower 53 bits
// of two random 32-bit words, the first of which is the upper half.
struct BernoulliArgs {
  uint32_t* state = nullptr; // kStateWords words, updated
  int used = 0;              // the number of words already drawn
  void* out = nullptr;
  int64_t size = 0;
  double p = 0; // from 0 to 1
  DType dtype{};
};

// Returns the new number of used words.
int bernoulli(const BernoulliArgs& args);

} // namespace at::native::zendnn::kernels
