#include <torch/csrc/zendnn/plan/tune/Trial.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Dtypes.h>

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace at::native::zendnn::plan {
namespace {

// The layer's weights in the plain layout, which are no primitive's argument.
constexpr int kPlain = -1;

// Enough to meet every tile and tail of a kernel.
constexpr int64_t kMostCompared = int64_t{1} << 22;

// Marsaglia's xorshift, as a number from 0 to 1.
float next_random(uint32_t& state) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return static_cast<float>(state >> 8) * 0x1p-24F;
}

template <typename T>
void fill_random(void* data, int64_t size, int seed, float low, float high) {
  auto* to = static_cast<T*>(data);
  auto state = static_cast<uint32_t>(seed) * 2654435761U + 1U;
  for (int64_t i = 0; i < size; ++i) {
    to[i] = static_cast<T>(low + (high - low) * next_random(state));
  }
}

int64_t bytes_of(const memory::desc& desc) {
  return static_cast<int64_t>(desc.get_size());
}

const Dtype& dtype_of(const memory::desc& desc) {
  return *find_dtype(&Dtype::primitive, desc.get_data_type());
}

void fill_with_numbers(const memory::desc& desc, void* data, int argument) {
  if (desc.get_padded_dims() != desc.get_dims()) {
    // Primitives rely on zeros in the padding, which a reorder writes.
    const memory::desc plain(
        desc.get_dims(),
        desc.get_data_type(),
        row_major_strides(desc.get_dims()));
    const auto numbers = allocate(bytes_of(plain));
    fill_with_numbers(plain, numbers.get(), argument);
    reorder_now(plain, numbers.get(), desc, data);
    return;
  }
  const bool post_op = argument >= ZENDNN_ARG_ATTR_MULTIPLE_POST_OP_BASE;
  const float low = post_op ? 0.5F : -1.F, high = post_op ? 1.5F : 1.F;
  with_type(dtype_of(desc), [&]<class T>(T) {
    const auto size = bytes_of(desc) / static_cast<int64_t>(sizeof(T));
    fill_random<T>(data, size, argument, low, high);
  });
}

// The numbers at `data`, a sample where they are many, and how many are NaN.
template <typename T>
Outcome outcome_of(const void* data, int64_t size) {
  constexpr int64_t kGrain = 1 << 16;
  const auto* const numbers = static_cast<const T*>(data);
  const auto step = std::max<int64_t>(1, size / kMostCompared) | 1;
  Outcome outcome;
  outcome.values.resize((size + step - 1) / step);
  at::parallel_for(
      0, std::ssize(outcome.values), kGrain, [&](int64_t begin, int64_t end) {
        for (auto i = begin; i < end; ++i) {
          outcome.values[i] = static_cast<float>(numbers[i * step]);
        }
      });
  outcome.nans = at::parallel_reduce(
      0,
      size,
      kGrain,
      int64_t{0},
      [&](int64_t begin, int64_t end, int64_t) {
        return std::count_if(numbers + begin, numbers + end, [](T number) {
          return std::isnan(static_cast<float>(number));
        });
      },
      std::plus<>());
  return outcome;
}

// In the order of the memory, gaps included.
Outcome outcome_of(const memory::desc& desc, const void* data) {
  return with_type(dtype_of(desc), [&]<class T>(T) {
    return outcome_of<T>(
        data, bytes_of(desc) / static_cast<int64_t>(sizeof(T)));
  });
}

constexpr int64_t kLine = 64;

__attribute__((target("clflushopt"))) void evict_lines(
    char* begin,
    const char* end) {
  for (; begin < end; begin += kLine) {
    _mm_clflushopt(begin);
  }
  _mm_sfence();
}

// Evicts weights from the caches unless they are small: a model has more of
// them than its caches hold, so that they come from memory.
void evict(void* weights, int64_t bytes) {
  constexpr int64_t kSmall = 1 << 20, kGrain = 1 << 18;
  if (!this_cpu().clflushopt || bytes < kSmall) {
    return;
  }
  auto* const begin = static_cast<char*>(weights);
  at::parallel_for(0, bytes, kGrain, [begin](int64_t from, int64_t to) {
    evict_lines(begin + from, begin + to);
  });
}

} // namespace

Trial::Trial(
    memory::desc plain,
    Fill weights,
    Lying lying,
    const Attached& attached,
    int64_t depth,
    double magnification)
    : plain_(std::move(plain)),
      weights_(std::move(weights)),
      lying_(std::move(lying)),
      attached_(attached),
      depth_(depth),
      magnification_(magnification) {}

double Trial::scale() {
  auto* plain = at(kPlain, bytes_of(plain_));
  weights_(plain);
  const auto sizes = plain_.get_dims();
  const auto elements = count(sizes);
  const auto dense = allocate(elements * static_cast<int64_t>(sizeof(float)));
  reorder_now(
      plain_,
      plain,
      {sizes, memory::data_type::f32, row_major_strides(sizes)},
      dense.get());
  const auto* const numbers = static_cast<const float*>(dense.get());
  const auto squares =
      std::inner_product(numbers, numbers + elements, numbers, 0.);
  pieces_.erase(kPlain);
  constexpr double kMeanSquare = 1. / 3; // of numbers from -1 to 1
  return std::sqrt(
      squares / static_cast<double>(elements) * kMeanSquare *
      static_cast<double>(depth_));
}

void* Trial::at(int argument, int64_t bytes) {
  auto& piece = pieces_[argument];
  if (piece.bytes < bytes) {
    piece = {}; // before there is more
    piece = {allocate(bytes), bytes};
  }
  return piece.memory.get();
}

void* Trial::operand(int argument, const memory::desc& desc) {
  const auto known = pieces_.find(argument);
  const bool there =
      known != pieces_.end() && known->second.bytes >= bytes_of(desc);
  auto* data = at(argument, bytes_of(desc));
  if (!there) { // all candidates read the same
    fill_with_numbers(desc, data, argument);
  }
  return data;
}

void* Trial::destination(const memory::desc& desc) {
  auto* data = at(ZENDNN_ARG_DST, bytes_of(desc));
  if (attached_.accumulates) {
    fill_with_numbers(desc, data, ZENDNN_ARG_DST);
  } else { // all ones are a NaN of either type
    std::fill_n(static_cast<uint8_t*>(data), bytes_of(desc), uint8_t{0xFF});
  }
  return data;
}

std::shared_ptr<void> Trial::weights(const Implementation& implementation) {
  if (!implementation.pack && implementation.plain == implementation.weights &&
      lying_) {
    return std::const_pointer_cast<void>(lying_()); // nothing writes to them
  }
  auto memory = allocate(bytes_of(implementation.weights));
  auto* const data = memory.get();
  if (implementation.pack) {
    implementation.pack(data);
  } else if (implementation.plain == implementation.weights) {
    weights_(data);
  } else if (lying_) {
    const auto lying = lying_();
    reorder_now(
        implementation.plain, lying.get(), implementation.weights, data);
  } else {
    auto* plain = at(kPlain, bytes_of(plain_));
    weights_(plain);
    reorder_now(implementation.plain, plain, implementation.weights, data);
    pieces_.erase(kPlain);
  }
  return memory;
}

Outcome Trial::judge(const Implementation& reference) {
  auto outcome = candidate(reference).compute();
  outcome.scale = scale();
  return outcome;
}

Candidate Trial::candidate(const Implementation& implementation) {
  struct Call {
    ::zendnn::primitive primitive;
    std::unordered_map<int, memory> arguments;
    std::shared_ptr<void> weights, scratchpad;

    void* address(int argument) const {
      const auto found = arguments.find(argument);
      return found == arguments.end() ? nullptr
                                      : found->second.get_data_handle();
    }
  };
  const auto call = std::make_shared<Call>();
  result_ = result_.is_zero() ? implementation.result : result_;
  const auto run = [call, &implementation] {
    if (implementation.run) {
      implementation.run([&](int argument) { return call->address(argument); });
    } else {
      call->primitive.execute(adeep::stream::default_stream(), call->arguments);
    }
  };
  // A choice that is known already needs none.
  const auto assemble = [call, &implementation] {
    if (implementation.make && !call->primitive) {
      call->primitive = implementation.make();
    }
  };
  const auto compute = [=, this, &implementation] {
    assemble();
    call->arguments.clear();
    const auto add = [&](int index, const memory::desc& desc, void* data) {
      call->arguments.emplace(index, at_address(desc, data));
    };
    const auto add_operand = [&](int index, const memory::desc& desc) {
      add(index, desc, operand(index, desc));
    };
    add_operand(ZENDNN_ARG_SRC, implementation.source);
    call->weights = weights(implementation);
    add(ZENDNN_ARG_WEIGHTS, implementation.weights, call->weights.get());
    add(ZENDNN_ARG_DST,
        implementation.result,
        destination(implementation.result));
    call->scratchpad = allocate(bytes_of(implementation.scratchpad));
    add(ZENDNN_ARG_SCRATCHPAD,
        implementation.scratchpad,
        call->scratchpad.get());
    if (!implementation.bias.is_zero()) {
      add_operand(ZENDNN_ARG_BIAS, implementation.bias);
    }
    for (const auto& operand : attached_.operands) {
      add_operand(operand.index, operand.desc);
    }
    run();
    auto* result = call->address(ZENDNN_ARG_DST);
    if (implementation.result == result_) {
      return outcome_of(result_, result);
    }
    const auto alike = allocate(bytes_of(result_));
    reorder_now(implementation.result, result, result_, alike.get());
    return outcome_of(result_, alike.get());
  };
  // How far rounding moves a result of float32 sums.
  const auto precision = 16 * implementation.loss * magnification_ *
                         std::sqrt(static_cast<double>(depth_)) *
                         std::numeric_limits<float>::epsilon();
  return {
      .name = implementation.name,
      .run = run,
      .before =
          [call, &implementation] {
            evict(
                call->address(ZENDNN_ARG_WEIGHTS),
                bytes_of(implementation.weights));
          },
      .assemble = assemble,
      .compute = compute,
      .precision = precision,
      .rounding = dtype_of(implementation.result).rounding,
      .release = [call] { *call = {}; }};
}

} // namespace at::native::zendnn::plan
