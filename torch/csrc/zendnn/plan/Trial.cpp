#include <torch/csrc/zendnn/plan/Layouts.h>
#include <torch/csrc/zendnn/plan/Trial.h>

#include <ATen/native/zendnn/Dtypes.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace at::native::zendnn::plan {
namespace {

// Stands for no primitive's argument: the layer's weights in the plain layout.
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

template <typename T>
int64_t count_nans(const void* data, int64_t bytes) {
  const auto* const numbers = static_cast<const T*>(data);
  return std::count_if(numbers, numbers + bytes / sizeof(T), [](T number) {
    return std::isnan(static_cast<float>(number));
  });
}

} // namespace

Outcome outcome_of(const memory::desc& desc, const void* data) {
  const auto sizes = desc.get_dims();
  const memory::desc plain(
      sizes, memory::data_type::f32, row_major_strides(sizes));
  const auto copy = allocate(bytes_of(plain));
  reorder_now(desc, data, plain, copy.get());
  const auto* const numbers = static_cast<const float*>(copy.get());
  const auto elements = count(sizes);
  const auto step = std::max<int64_t>(1, elements / kMostCompared) | 1;
  Outcome outcome;
  outcome.values.reserve(elements / step + 1);
  for (int64_t i = 0; i < elements; i += step) {
    outcome.values.push_back(numbers[i]);
  }
  outcome.nans = with_type(dtype_of(desc), [&]<class T>(T) {
    return count_nans<T>(data, bytes_of(desc));
  });
  return outcome;
}

Trial::Trial(
    memory::desc plain,
    Fill weights,
    int64_t depth,
    double magnification)
    : plain_(std::move(plain)),
      weights_(std::move(weights)),
      depth_(depth),
      magnification_(magnification) {}

double Trial::precision() const {
  return 16 * magnification_ * std::sqrt(static_cast<double>(depth_)) *
         std::numeric_limits<float>::epsilon();
}

double Trial::scale() {
  auto* plain = at(kPlain, bytes_of(plain_));
  weights_(plain);
  double squares = 0;
  const auto values = outcome_of(plain_, plain).values;
  for (const double value : values) {
    squares += value * value;
  }
  pieces_.erase(kPlain);
  constexpr double kMeanSquare = 1. / 3; // of numbers from -1 to 1
  return std::sqrt(
      squares / static_cast<double>(values.size()) * kMeanSquare *
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

void* Trial::destination(const memory::desc& desc, bool accumulates) {
  auto* data = at(ZENDNN_ARG_DST, bytes_of(desc));
  if (accumulates) {
    fill_with_numbers(desc, data, ZENDNN_ARG_DST);
  } else { // all ones are a NaN of either type
    std::fill_n(static_cast<uint8_t*>(data), bytes_of(desc), uint8_t{0xFF});
  }
  return data;
}

void* Trial::weights(const memory::desc& seen, const memory::desc& layout) {
  auto* data = at(ZENDNN_ARG_WEIGHTS, bytes_of(layout));
  if (seen == layout) {
    weights_(data);
    return data;
  }
  auto* plain = at(kPlain, bytes_of(plain_));
  weights_(plain);
  reorder_now(seen, plain, layout, data);
  pieces_.erase(kPlain);
  return data;
}

Outcome judgement_of(const Candidate& reference, Trial& trial) {
  auto outcome = reference.compute();
  outcome.scale = trial.scale();
  return outcome;
}

Candidate as_candidate(
    const Primitive& made,
    const memory::desc& bias,
    const Attached& attached,
    const std::shared_ptr<Trial>& trial) {
  struct Call {
    ::zendnn::primitive primitive;
    std::unordered_map<int, memory> arguments;
  };
  const auto call = std::make_shared<Call>();
  const auto run = [call] {
    call->primitive.execute(adeep::stream::default_stream(), call->arguments);
  };
  // Made when it is first compared: a choice that is known already needs none.
  const auto compute = [=,
                        operands = attached.operands,
                        accumulates = attached.accumulator.has_value()] {
    call->primitive = made.make();
    call->arguments.clear();
    const auto add = [&](int index, const memory::desc& desc, void* data) {
      call->arguments.emplace(index, at_address(desc, data));
    };
    const auto add_operand = [&](int index, const memory::desc& desc) {
      add(index, desc, trial->operand(index, desc));
    };
    add_operand(ZENDNN_ARG_SRC, made.source);
    add(ZENDNN_ARG_WEIGHTS,
        made.weights,
        trial->weights(made.plain, made.weights));
    auto* result = trial->destination(made.result, accumulates);
    add(ZENDNN_ARG_DST, made.result, result);
    add(ZENDNN_ARG_SCRATCHPAD,
        made.scratchpad,
        trial->at(ZENDNN_ARG_SCRATCHPAD, bytes_of(made.scratchpad)));
    if (!bias.is_zero()) {
      add_operand(ZENDNN_ARG_BIAS, bias);
    }
    for (const auto& operand : operands) {
      add_operand(operand.index, operand.desc);
    }
    run();
    return outcome_of(made.result, result);
  };
  const auto before = [call] {
    const auto& weights = call->arguments.at(ZENDNN_ARG_WEIGHTS);
    evict_weights(
        weights.get_data_handle(),
        static_cast<int64_t>(weights.get_desc().get_size()));
  };
  return {
      .name = made.name,
      .run = run,
      .before = before,
      .compute = compute,
      .precision = trial->precision(),
      .rounding = dtype_of(made.result).rounding};
}

} // namespace at::native::zendnn::plan
