#include <torch/csrc/zendnn/plan/Builder.h>
#include <torch/csrc/zendnn/plan/Kernel.h>
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/Product.h>

#include <ATen/native/zendnn/kernels/memory.h>
#include <adeep/abstract_types.hpp>

#include <tuple>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

const Node kReorder{.label = "reorder"};

} // namespace

std::unique_ptr<Executable> Builder::build() {
  place_inputs();
  place_constants();
  auto& outputs = program_.outputs;
  for (const auto value : description_.outputs) {
    results_.emplace(value, static_cast<int64_t>(outputs.size()));
    outputs.push_back({sizes(value), result_strides(value), dtype(value)});
  }
  find_slices();
  build_nodes();
  finish_results();
  Packed::fill(program_.pieces);
  std::tie(program_.buffers, program_.arena_bytes) = buffers_.lay_out(
      /*share=*/!description_.without.contains("share_memory"));
  return std::make_unique<Executable>(std::move(program_));
}

void Builder::place_inputs() {
  int64_t tensor = 0;
  for (const auto& input : description_.inputs) {
    if (!input.is_number) {
      set_place(
          input.value,
          {.ref = add_buffer({.kind = BufferKind::input, .index = tensor++}),
           .strides = strides(input.value)});
    }
  }
}

void Builder::build_nodes() {
  const auto all = static_cast<int64_t>(nodes_.size());
  for (node_ = 0; node_ < all; ++node_) {
    const auto& node = nodes_[node_];
    at_node(written_[node_], [&] {
      const auto build =
          node.left ? build_by_torch : find_operator(node.op).build;
      build(*this, node);
    });
  }
}

// ---- Steps

std::vector<TensorSpec> Builder::operands_of(const Node& node) const {
  std::vector<TensorSpec> specs;
  for (const auto value : node.reads()) {
    if (!is_number(value)) {
      specs.push_back(spec(value));
    }
  }
  return specs;
}

void Builder::add_primitive(
    const Node& node,
    const ::zendnn::primitive& primitive,
    std::string implementation,
    std::vector<Step::Argument> arguments,
    double flops) {
  zendnn_memory_desc_t wanted = nullptr;
  if (zendnn_memory_desc_clone(
          &wanted,
          zendnn_primitive_desc_query_md(
              primitive.get_primitive_desc(), zendnn_query_scratchpad_md, 0)) ==
      zendnn_success) {
    const memory::desc scratchpad(wanted);
    if (const auto bytes = static_cast<int64_t>(scratchpad.get_size())) {
      int64_t operands = 0;
      for (const auto& argument : arguments) {
        operands += static_cast<int64_t>(argument.desc.get_size());
      }
      if (bytes > scratchpad_bound(operands)) {
        refuse(
            implementation + " wants a scratchpad of " + std::to_string(bytes) +
            " bytes for operands of " + std::to_string(operands));
      }
      arguments.push_back({ZENDNN_ARG_SCRATCHPAD, scratchpad, scratch(bytes)});
    }
  }
  for (const auto& argument : arguments) {
    buffers_.touch(argument.ref, step());
  }
  program_.steps.push_back(
      {.label = node.label,
       .implementation = std::move(implementation),
       .flops = flops,
       .operands = operands_of(node),
       .primitive = primitive,
       .arguments = std::move(arguments)});
}

void Builder::add_kernel(
    const Node& node,
    std::string implementation,
    const std::vector<Ref>& touched,
    std::function<void(const Frame&)> kernel,
    double flops) {
  for (const auto ref : touched) {
    buffers_.touch(ref, step());
  }
  program_.steps.push_back(
      {.label = node.label,
       .implementation = std::move(implementation),
       .flops = flops,
       .operands = operands_of(node),
       .kernel = std::move(kernel)});
}

Choice Builder::choose(
    const Node& node,
    const std::string& key,
    const std::vector<Candidate>& candidates,
    const Judge& judge,
    const std::string& about) {
  auto choice = plan::choose(key, candidates, tuning_seconds_, judge, about);
  for (const auto& name : choice.wrong) {
    program_.wrong.push_back(name + " for " + node.label);
  }
  return choice;
}

std::shared_ptr<const Implementation> Builder::chosen(
    const std::string& problem) {
  auto made = chosen_.find(problem);
  if (made != nullptr) {
    program_.chosen.push_back(made);
  }
  return made;
}

void Builder::set_chosen(
    const std::string& problem,
    const std::shared_ptr<const Implementation>& made) {
  program_.chosen.push_back(chosen_.get(problem, [&] { return made; }));
}

bool Builder::is_at_border(const Place& from, const Place& to) const {
  return buffers_.holder(from.ref).kind == BufferKind::input ||
         buffers_.holder(to.ref).kind == BufferKind::output;
}

void Builder::copy(int64_t value, const Place& from, const Place& to) {
  if (!from.blocked && !to.blocked) {
    copy_as(sizes(value), item_size(dtype(value)), from, to);
  } else {
    program_.border_copies += is_at_border(from, to);
    const auto source = describe(value, from), target = describe(value, to);
    const auto& engine = adeep::engine::cpu_engine();
    const ::zendnn::reorder::primitive_desc reorder(
        engine, source, engine, target, user_scratchpad());
    add_primitive(
        kReorder,
        ::zendnn::reorder(reorder),
        std::string("reorder ") + reorder.impl_info_str(),
        {{ZENDNN_ARG_FROM, source, from.ref}, {ZENDNN_ARG_TO, target, to.ref}});
  }
  program_.steps.back().operands = {spec(value)};
}

void Builder::copy_as(
    const Dims& shape,
    int64_t item_bytes,
    const Place& from,
    const Place& to) {
  check_copied(item_bytes);
  program_.border_copies += is_at_border(from, to);
  add_copies(*this, kReorder, "copy", {{shape, item_bytes, from, to}});
}

void Copy::run(const Frame& frame) const {
  kernels::copy_strided(
      {.src = frame.at(from.ref),
       .src_strides = from.strides.data(),
       .dst = frame.at(to.ref),
       .dst_strides = to.strides.data(),
       .sizes = sizes.data(),
       .ndim = std::ssize(sizes),
       .itemsize = item_bytes});
}

void add_copies(
    Builder& builder,
    const Node& node,
    const std::string& implementation,
    const std::vector<Copy>& copies) {
  std::vector<Ref> touched;
  for (const auto& copy : copies) {
    touched.push_back(copy.from.ref);
    touched.push_back(copy.to.ref);
  }
  builder.add_kernel(
      node, implementation, touched, [copies](const Frame& frame) {
        for (const auto& copy : copies) {
          copy.run(frame);
        }
      });
}

void Builder::finish_results() {
  for (size_t i = 0; i < description_.outputs.size(); ++i) {
    const auto value = description_.outputs[i];
    const auto index = static_cast<int64_t>(i);
    const bool there = find_place(value, [&](const Place& known) {
      const auto& buffer = buffers_[known.ref.buffer];
      return buffer.kind == BufferKind::output && buffer.index == index;
    });
    if (!there) {
      const Place from = place(value);
      copy(
          value,
          from,
          {.ref = add_buffer({.kind = BufferKind::output, .index = index}),
           .strides = program_.outputs[i].strides});
    }
  }
}

} // namespace at::native::zendnn::plan
