#include <torch/csrc/zendnn/plan/Primitive.h>

#include <adeep/abstract_types.hpp>

#include <algorithm>

namespace at::native::zendnn::plan {

memory::desc any_layout(const memory::desc& of) {
  return {of.get_dims(), of.get_data_type(), memory::format_tag::any};
}

Candidate as_candidate(
    const Primitive& made,
    const memory::desc& bias,
    const std::vector<Step::Argument>& operands) {
  const auto& engine = adeep::engine::cpu_engine();
  std::unordered_map<int, memory> arguments;
  const auto give = [&](int index, const memory::desc& desc) {
    memory fresh(desc, engine);
    std::fill_n(
        static_cast<char*>(fresh.get_data_handle()), desc.get_size(), char{0});
    arguments.emplace(index, fresh);
  };
  give(ZENDNN_ARG_SRC, made.source);
  give(ZENDNN_ARG_WEIGHTS, made.weights);
  give(ZENDNN_ARG_DST, made.result);
  give(ZENDNN_ARG_SCRATCHPAD, made.workspace);
  if (!bias.is_zero()) {
    give(ZENDNN_ARG_BIAS, bias);
  }
  for (const auto& operand : operands) {
    give(operand.index, operand.desc);
  }
  return {made.name, [run = made.run, arguments] {
            run.execute(adeep::stream::default_stream(), arguments);
          }};
}

} // namespace at::native::zendnn::plan
