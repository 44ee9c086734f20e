#include <torch/csrc/zendnn/plan/Primitive.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Info.h>

#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

constexpr int64_t kLine = 64;

__attribute__((target("clflushopt"))) void evict_lines(
    char* begin,
    const char* end) {
  for (; begin < end; begin += kLine) {
    _mm_clflushopt(begin);
  }
  _mm_sfence();
}

// Itself while it is small, else 2ⁿ or 3 · 2ⁿ.
int64_t rounded_up(int64_t rows) {
  constexpr int64_t kSmall = 16;
  int64_t size = kSmall;
  while (size < rows) {
    size += (size & (size - 1)) == 0 ? size / 2 : size / 3;
  }
  return rows <= kSmall ? rows : size;
}

} // namespace

bool is_affordable(const Primitive& made) {
  const auto bytes = [](const memory::desc& desc) {
    return static_cast<int64_t>(desc.get_size());
  };
  const auto operands =
      bytes(made.source) + bytes(made.weights) + bytes(made.result);
  const auto wanted = bytes(made.scratchpad);
  if (wanted <= scratchpad_bound(operands)) {
    return true;
  }
  if (verbose() > 0) {
    std::printf(
        "zendnn_verbose,refuse,%s,a scratchpad of %lld bytes for %lld of "
        "operands\n",
        made.name.c_str(),
        static_cast<long long>(wanted),
        static_cast<long long>(operands));
  }
  return false;
}

void evict_weights(void* weights, int64_t bytes) {
  constexpr int64_t kSmall = 1 << 20, kGrain = 1 << 18;
  if (!this_cpu().clflushopt || bytes < kSmall) {
    return;
  }
  auto* const begin = static_cast<char*>(weights);
  at::parallel_for(0, bytes, kGrain, [begin](int64_t from, int64_t to) {
    evict_lines(begin + from, begin + to);
  });
}

memory::desc any_layout(const memory::desc& of) {
  return {of.get_dims(), of.get_data_type(), memory::format_tag::any};
}

std::string text_of(const memory::desc& desc, bool about) {
  std::ostringstream text;
  const auto list = [&](char before, const Dims& numbers) {
    for (const auto number : numbers) {
      text << std::exchange(before, ',') << number;
    }
  };
  if (desc.is_zero()) {
    return "none";
  }
  text << static_cast<int>(desc.get_data_type());
  auto dims = desc.get_dims();
  dims[0] = about ? rounded_up(dims[0]) : dims[0];
  list(':', dims);
  if (desc.get_format_kind() == memory::format_kind::blocked) {
    list('/', desc.get_strides());
    list('b', desc.get_inner_blks());
    list('i', desc.get_inner_idxs());
  }
  return text.str();
}

} // namespace at::native::zendnn::plan
