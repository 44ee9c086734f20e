// Random numbers of torch's own generator. The compiler vectorises these loops.
#include "random.h"

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

constexpr int kMiddle = 397;

inline uint32_t twisted(uint32_t top, uint32_t rest, uint32_t other) {
  const uint32_t y = (top & 0x80000000u) | (rest & 0x7fffffffu);
  return other ^ (y >> 1) ^ ((0 - (rest & 1)) & 0x9908b0dfu);
}

// Replaces each word of the state by the one kStateWords later.
void advance(uint32_t* state) {
  constexpr int ahead = kStateWords - kMiddle;
  for (int i = 0; i < ahead; ++i)
    state[i] = twisted(state[i], state[i + 1], state[i + kMiddle]);
  for (int i = ahead; i < kStateWords - 1; ++i)
    state[i] = twisted(state[i], state[i + 1], state[i - ahead]);
  constexpr int last = kStateWords - 1;
  state[last] = twisted(state[last], state[0], state[last - ahead]);
}

void temper(const uint32_t* state, int count, uint32_t* drawn) {
  for (int i = 0; i < count; ++i) {
    uint32_t y = state[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    drawn[i] = y ^ (y >> 18);
  }
}

// Whether the fraction formed by two words is below limit / 2⁵³.
void compare(const uint32_t* drawn, int64_t limit, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint64_t pair; // the second word is the upper half
    __builtin_memcpy(&pair, drawn + 2 * i, sizeof(pair));
    const auto fraction =
        static_cast<int64_t>((pair & 0x1fffffu) << 32 | pair >> 32);
    out[i] = fraction < limit ? 1.0f : 0.0f;
  }
}

} // namespace

int bernoulli(const BernoulliArgs& args) {
  const auto limit = static_cast<int64_t>(__builtin_ceil(args.p * 0x1p53));
  uint32_t drawn[1 + kStateWords];
  float chosen[kStateWords / 2];
  int used = args.used, held = 0; // words of a pair split between two states
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    T* out = static_cast<T*>(args.out);
    for (int64_t left = args.size; left > 0;) {
      if (used == kStateWords) {
        advance(args.state);
        used = 0;
      }
      temper(args.state + used, kStateWords - used, drawn + held);
      const int words = held + kStateWords - used;
      const int64_t count = min(left, words / 2);
      compare(drawn, limit, chosen, count);
      each_vector(count, [&](int64_t i, auto lanes) {
        store(out + i, load(chosen + i, lanes), lanes);
      });
      out += count;
      left -= count;
      used += static_cast<int>(2 * count) - held;
      held = left > 0 ? words % 2 : 0;
      if (held) {
        drawn[0] = drawn[words - 1];
        used = kStateWords;
      }
    }
  });
  return used;
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
