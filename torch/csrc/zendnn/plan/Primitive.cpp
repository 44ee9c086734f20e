#include <torch/csrc/zendnn/plan/Primitive.h>

#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <sstream>

namespace at::native::zendnn::plan {

memory::desc any_layout(const memory::desc& of) {
  return {of.get_dims(), of.get_data_type(), memory::format_tag::any};
}

std::string text_of(const memory::desc& desc) {
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
  list(':', desc.get_dims());
  if (desc.get_format_kind() == memory::format_kind::blocked) {
    list('/', desc.get_strides());
    list('b', desc.get_inner_blks());
    list('i', desc.get_inner_idxs());
  }
  return text.str();
}

Candidate as_candidate(
    const Primitive& made,
    const memory::desc& bias,
    const std::vector<Step::Argument>& operands) {
  std::vector<std::pair<int, memory::desc>> wanted{
      {ZENDNN_ARG_SRC, made.source},
      {ZENDNN_ARG_WEIGHTS, made.weights},
      {ZENDNN_ARG_DST, made.result},
      {ZENDNN_ARG_SCRATCHPAD, made.workspace}};
  if (!bias.is_zero()) {
    wanted.emplace_back(ZENDNN_ARG_BIAS, bias);
  }
  for (const auto& operand : operands) {
    wanted.emplace_back(operand.index, operand.desc);
  }
  // Made by the first run: a choice that is known already needs none.
  std::unordered_map<int, memory> arguments;
  std::vector<std::shared_ptr<void>> held;
  return {made.name, [run = made.run, wanted, arguments, held]() mutable {
            if (arguments.empty()) {
              for (const auto& [index, desc] : wanted) {
                const auto bytes = static_cast<int64_t>(desc.get_size());
                const auto& zeros = held.emplace_back(allocate(bytes));
                std::fill_n(static_cast<char*>(zeros.get()), bytes, char{0});
                arguments.emplace(
                    index,
                    memory(desc, adeep::engine::cpu_engine(), zeros.get()));
              }
            }
            run.execute(adeep::stream::default_stream(), arguments);
          }};
}

} // namespace at::native::zendnn::plan
