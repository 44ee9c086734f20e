// Measures how fast the library's own primitives multiply, by dtype.
//
//     rates SECONDS < problems
//
// Each line of the input is a problem: `product M K N`, or `convolution BATCH
// CHANNELS SIZE OUT_CHANNELS KERNEL STRIDE GROUPS` of square images and kernels
// whose padding keeps the size. For each line and dtype it prints `RATE
// IMPLEMENTATION`, in billions of operations per second; a multiply-add counts
// as two. Each takes SECONDS; the result is the fastest of its runs.
//
// int8 is the case of a quantised model: unsigned activations with a scale and
// a zero point, signed weights with a scale for each output channel, and an
// unsigned result.

#include <oneapi/zendnn/zendnn.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using zendnn::algorithm;
using zendnn::convolution_forward;
using zendnn::engine;
using zendnn::matmul;
using zendnn::memory;
using zendnn::primitive;
using zendnn::primitive_attr;
using zendnn::primitive_desc_base;
using zendnn::prop_kind;
using zendnn::stream;
using dt = memory::data_type;
using tag = memory::format_tag;
using Dims = memory::dims;

struct Types {
  dt source;
  dt weights;
  dt result;
};

constexpr Types kTypes[] = {
    {dt::f32, dt::f32, dt::f32},
    {dt::bf16, dt::bf16, dt::bf16},
    {dt::u8, dt::s8, dt::u8},
};

struct Problem {
  Dims source;
  Dims weights;
  Dims result;
  memory::dim stride = 0; // 0 for a product
  memory::dim padding = 0;
  int channel_mask = 0; // the dimension of the weights that a scale is for
  double operations = 0;

  bool is_product() const {
    return stride == 0;
  }
};

Problem parse(const std::string& line) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  Problem result;
  if (kind == "product") {
    memory::dim m = 0, k = 0, n = 0;
    words >> m >> k >> n;
    result = {.source = {m, k}, .weights = {k, n}, .result = {m, n}};
    result.channel_mask = 1 << 1;
    result.operations = 2.0 * m * k * n;
  } else {
    memory::dim batch = 0, in = 0, size = 0, out = 0, kernel = 0, stride = 0,
                groups = 0;
    words >> batch >> in >> size >> out >> kernel >> stride >> groups;
    const auto padding = kernel / 2;
    const auto after = (size + 2 * padding - kernel) / stride + 1;
    result.source = {batch, in, size, size};
    result.weights = {groups, out / groups, in / groups, kernel, kernel};
    result.result = {batch, out, after, after};
    result.stride = stride;
    result.padding = padding;
    result.channel_mask = 1 << 0 | 1 << 1;
    if (groups == 1) {
      result.weights.erase(result.weights.begin());
      result.channel_mask = 1 << 0;
    }
    result.operations =
        2.0 * batch * out * after * after * (in / groups) * kernel * kernel;
  }
  if (!words) {
    throw std::invalid_argument("'" + line + "' is not a problem");
  }
  return result;
}

primitive_attr attributes(const Problem& problem, const Types& types) {
  primitive_attr attr;
  attr.set_scratchpad_mode(zendnn::scratchpad_mode::user);
  if (types.source == dt::u8) {
    attr.set_scales_mask(ZENDNN_ARG_SRC, 0);
    attr.set_scales_mask(ZENDNN_ARG_WEIGHTS, problem.channel_mask);
    attr.set_scales_mask(ZENDNN_ARG_DST, 0);
    attr.set_zero_points_mask(ZENDNN_ARG_SRC, 0);
    attr.set_zero_points_mask(ZENDNN_ARG_DST, 0);
  }
  return attr;
}

// Memory that holds ones, so that no product is of numbers that are slow.
memory filled(const memory::desc& desc, const engine& cpu) {
  memory result(desc, cpu);
  auto* const bytes = static_cast<unsigned char*>(result.get_data_handle());
  const auto size = desc.get_size();
  if (desc.get_data_type() == dt::f32) {
    std::fill_n(reinterpret_cast<float*>(bytes), size / sizeof(float), 1.0f);
  } else if (desc.get_data_type() == dt::bf16) {
    std::fill_n(
        reinterpret_cast<unsigned short*>(bytes), size / 2, 0x3f80); // 1
  } else if (desc.get_data_type() == dt::s32) {
    std::fill_n(reinterpret_cast<int*>(bytes), size / sizeof(int), 1);
  } else {
    std::fill_n(bytes, size, 1);
  }
  return result;
}

// Calls the primitive for so long, and prints the rate of the fastest call.
template <typename Description>
void run(
    const Description& description,
    const Problem& problem,
    const Types& types,
    const engine& cpu,
    double seconds) {
  std::unordered_map<int, memory> arguments{
      {ZENDNN_ARG_SRC, filled(description.src_desc(), cpu)},
      {ZENDNN_ARG_WEIGHTS, filled(description.weights_desc(), cpu)},
      {ZENDNN_ARG_BIAS, filled(description.bias_desc(), cpu)},
      {ZENDNN_ARG_DST, filled(description.dst_desc(), cpu)},
      {ZENDNN_ARG_SCRATCHPAD, memory(description.scratchpad_desc(), cpu)}};
  if (types.source == dt::u8) {
    const memory::desc one({1}, dt::f32, tag::a),
        zero_point({1}, dt::s32, tag::a),
        channels({problem.result[1]}, dt::f32, tag::a);
    for (const int argument : {ZENDNN_ARG_SRC, ZENDNN_ARG_DST}) {
      arguments.emplace(ZENDNN_ARG_ATTR_SCALES | argument, filled(one, cpu));
      arguments.emplace(
          ZENDNN_ARG_ATTR_ZERO_POINTS | argument, filled(zero_point, cpu));
    }
    arguments.emplace(
        ZENDNN_ARG_ATTR_SCALES | ZENDNN_ARG_WEIGHTS, filled(channels, cpu));
  }
  const primitive operation(description);
  stream queue(cpu);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double fastest = INFINITY;
  do {
    const auto start = Clock::now();
    operation.execute(queue, arguments);
    queue.wait();
    fastest = std::min(
        fastest, std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() < end);
  std::cout << problem.operations / fastest / 1e9 << ' '
            << description.impl_info_str() << std::endl;
}

void measure(
    const Problem& problem,
    const Types& types,
    const engine& cpu,
    double seconds) {
  const auto attr = attributes(problem, types);
  // A bias of float32 in each dtype: a quantised layer has one, too.
  if (problem.is_product()) {
    const matmul::primitive_desc description(
        cpu,
        {problem.source, types.source, tag::ab},
        {problem.weights, types.weights, tag::any},
        {{1, problem.result[1]}, dt::f32, tag::ab},
        {problem.result, types.result, tag::ab},
        attr);
    run(description, problem, types, cpu, seconds);
  } else {
    const Dims strides{problem.stride, problem.stride},
        padding{problem.padding, problem.padding};
    const convolution_forward::primitive_desc description(
        cpu,
        prop_kind::forward_inference,
        algorithm::convolution_direct,
        {problem.source, types.source, tag::any},
        {problem.weights, types.weights, tag::any},
        {{problem.result[1]}, dt::f32, tag::a},
        {problem.result, types.result, tag::any},
        strides,
        padding,
        padding,
        attr);
    run(description, problem, types, cpu, seconds);
  }
}

} // namespace

int main(int count, char** arguments) {
  const double seconds = count == 2 ? std::atof(arguments[1]) : 0;
  if (!(seconds > 0)) {
    std::cerr << "error: call it as " << arguments[0]
              << " SECONDS < problems\n";
    return 2;
  }
  try {
    const engine cpu(engine::kind::cpu, 0);
    for (std::string line; std::getline(std::cin, line);) {
      const auto problem = parse(line);
      for (const auto& types : kTypes) {
        measure(problem, types, cpu, seconds);
      }
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
