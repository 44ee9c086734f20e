#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/operators/Amd.h>

#include <ATen/native/zendnn/AoclDlp.h>
#include <ATen/native/zendnn/Cpu.h>

#include <algorithm>

namespace at::native::zendnn::plan {
namespace {

// Its functions of one number; silu's factor is 1.
std::optional<aocl::Function> amd_function(kernels::Eltwise function) {
  using kernels::Eltwise;
  switch (function) {
    case Eltwise::relu:
      return aocl::Function::relu;
    case Eltwise::gelu:
      return aocl::Function::gelu;
    case Eltwise::gelu_tanh:
      return aocl::Function::gelu_tanh;
    case Eltwise::silu:
      return aocl::Function::swish;
    case Eltwise::tanh:
      return aocl::Function::tanh;
    case Eltwise::sigmoid:
      return aocl::Function::sigmoid;
    default:
      return std::nullopt;
  }
}

constexpr float kOne = 1;

aocl::Type amd_type(const memory::desc& desc) {
  return desc.get_data_type() == memory::data_type::f32 ? aocl::Type::float32
                                                        : aocl::Type::bfloat16;
}

// A post-op: a function, or a matrix, whose argument is the index.
struct AmdPost {
  aocl::Operation operation;
  aocl::Function function{};
  aocl::Matrix matrix{};
  int index = 0;
};

// A product with its post-ops; the bias is the first of them.
struct AmdProduct {
  aocl::Multiply multiply;
  int64_t rows, columns, depth, source_step, result_step;
  aocl::Type bias; // none where there is no bias
  std::vector<AmdPost> posts;
  float kept; // how much of what lies where the result goes is added to it

  // Whether all went well.
  bool run(const Addresses& at) const {
    std::array<aocl::Operation, aocl::kMostPostOps> operations{};
    std::array<aocl::FunctionOf, aocl::kMostPostOps> functions{};
    std::array<aocl::Matrix, aocl::kMostPostOps> added{}, factors{};
    aocl::Bias numbers;
    aocl::PostOps all{
        .functions = functions.data(),
        .bias = &numbers,
        .added = added.data(),
        .factors = factors.data(),
        .operations = operations.data()};
    if (bias != aocl::Type::none) {
      numbers = {.numbers = at(ZENDNN_ARG_BIAS), .type = bias, .size = columns};
      operations[all.size++] = aocl::Operation::bias;
    }
    auto* function = functions.begin();
    auto *sum = added.begin(), *factor = factors.begin();
    for (const auto& post : posts) {
      operations[all.size++] = post.operation;
      if (post.operation == aocl::Operation::function) {
        *function++ = {
            .alpha = &kOne,
            .function = post.function,
            .type = aocl::Type::float32};
        continue;
      }
      auto*& next = post.operation == aocl::Operation::add ? sum : factor;
      *next = post.matrix;
      next++->numbers = at(post.index);
    }
    multiply(
        'r',
        'n',
        'n',
        rows,
        columns,
        depth,
        1,
        at(ZENDNN_ARG_SRC),
        source_step,
        'n',
        at(ZENDNN_ARG_WEIGHTS),
        columns,
        'r',
        kept,
        at(ZENDNN_ARG_DST),
        result_step,
        &all);
    return std::all_of(all.rest.begin(), all.rest.end(), [](uint64_t word) {
      return word == 0;
    });
  }
};

// The post-ops as AOCL-DLP takes them; nothing if it does not.
std::optional<std::vector<AmdPost>> translated(
    const Node& node,
    const Attached& attached,
    const memory::desc& result) {
  std::vector<AmdPost> posts;
  for (size_t i = 0; i < attached.taken; ++i) {
    const auto& post = node.post[i];
    if (!post.is_binary()) {
      const auto function = amd_function(post.function);
      if (!function) {
        return std::nullopt;
      }
      posts.push_back(
          {.operation = aocl::Operation::function, .function = *function});
      continue;
    }
    const auto index = ZENDNN_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) |
                       ZENDNN_ARG_SRC_1;
    const auto operand = std::find_if(
        attached.operands.begin(),
        attached.operands.end(),
        [&](const auto& known) { return known.index == index; });
    if (operand == attached.operands.end() && i == 0) {
      continue; // it lies where the result goes, and is added first
    }
    const bool adds = post.is(kernels::Binary::add);
    if (operand == attached.operands.end() ||
        (!adds && !post.is(kernels::Binary::mul))) {
      return std::nullopt;
    }
    const auto& desc = operand->desc;
    if (desc.get_dims() != result.get_dims() || desc.get_strides()[1] != 1) {
      return std::nullopt;
    }
    posts.push_back(
        {.operation = adds ? aocl::Operation::add : aocl::Operation::multiply,
         .matrix = {.row_stride = row_step(desc), .type = amd_type(desc)},
         .index = index});
  }
  return posts;
}

} // namespace

void add_amd(
    const Builder& builder,
    const Node& node,
    const memory::desc& weights,
    const Attached& attached,
    std::vector<Implementation>& found) {
  const auto* const amd = aocl::library();
  if (amd == nullptr || found.empty()) {
    return;
  }
  const auto& first = found[0];
  const bool narrow = amd_type(weights) == aocl::Type::bfloat16;
  const auto& products = narrow ? amd->bfloat16 : amd->float32;
  auto* const multiply = amd_type(first.result) == aocl::Type::float32
                             ? products.to_float32
                             : products.to_bfloat16;
  auto posts = translated(node, attached, first.result);
  const auto steps = weights.get_strides();
  const bool turned = steps[0] == 1;
  if (!uses(narrow ? Isa::avx512_bf16 : Isa::avx2) || multiply == nullptr ||
      !posts || posts->size() + 1 > aocl::kMostPostOps ||
      (!turned && steps[1] != 1)) {
    return;
  }
  const auto depth = weights.get_dims()[0], columns = weights.get_dims()[1];
  const char order = turned ? 't' : 'n';
  const auto bytes = static_cast<int64_t>(
      products.packed_size('r', order, 'B', depth, columns, nullptr));
  if (bytes <= 0) {
    return;
  }
  const AmdProduct product{
      .multiply = multiply,
      .rows = first.source.get_dims()[0],
      .columns = columns,
      .depth = depth,
      .source_step = row_step(first.source),
      .result_step = row_step(first.result),
      .bias = first.bias.is_zero() ? aocl::Type::none : amd_type(first.bias),
      .posts = std::move(*posts),
      .kept = attached.accumulates ? 1.F : 0.F};
  const auto weight = tensor(node, 1);
  found.push_back(
      {.source = first.source,
       .weights = {{bytes}, memory::data_type::u8, memory::format_tag::x},
       .bias = first.bias,
       .result = first.result,
       .scratchpad = {},
       .name = "aocl-dlp " + amd->version,
       .run =
           [product](const Addresses& at) {
             if (!product.run(at)) {
               refuse("a product that AOCL-DLP does not compute");
             }
           },
       .pack =
           [order,
            depth,
            columns,
            step = turned ? std::max(steps[1], depth)
                          : std::max(steps[0], columns),
            size = static_cast<int64_t>(weights.get_size()),
            pack = products.pack,
            plain = builder.plain_weights(
                weight, static_cast<int64_t>(weights.get_size())),
            lying = builder.lying_weights(weight)](void* to) {
             std::shared_ptr<const void> from;
             if (lying) {
               from = lying();
             } else {
               const auto joined = allocate(size);
               plain(joined.get());
               from = joined;
             }
             pack(
                 'r',
                 order,
                 'B',
                 from.get(),
                 to,
                 depth,
                 columns,
                 step,
                 nullptr);
           }});
}

} // namespace at::native::zendnn::plan
