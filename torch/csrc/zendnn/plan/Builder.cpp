#include <torch/csrc/zendnn/plan/Builder.h>
#include <torch/csrc/zendnn/plan/Kernel.h>
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/Product.h>

#include <ATen/native/zendnn/kernels/memory.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <limits>

namespace at::native::zendnn::plan {
Builder::Builder(
    const Description& description,
    const std::vector<Tensor>& constants,
    Packed& packed,
    Layout layout,
    std::vector<Left>& left,
    Conditions& conditions,
    double& tuning_seconds,
    const std::vector<InputSignature>& inputs,
    const std::vector<int64_t>& numbers)
    : Values(description, constants, left, conditions, inputs, numbers),
      packed_(packed),
      layout_(layout),
      tuning_seconds_(tuning_seconds),
      places_(values_.size()) {}

std::unique_ptr<Executable> Builder::build() {
  place_inputs();
  place_constants();
  for (const auto value : description_.outputs) {
    results_.emplace(value, static_cast<int64_t>(outputs_.size()));
    outputs_.push_back({sizes(value), result_strides(value), dtype(value)});
  }
  find_slices();
  build_nodes();
  finish_results();
  return finish();
}

void Builder::place_inputs() {
  int64_t tensor = 0;
  for (const auto& input : description_.inputs) {
    if (!input.is_number) {
      const auto buffer =
          add_buffer({.kind = BufferKind::input, .index = tensor++});
      set_place(
          input.value, {.ref = {buffer, 0}, .strides = strides(input.value)});
    }
  }
}

void Builder::build_nodes() {
  const auto all = static_cast<int64_t>(description_.nodes.size());
  for (node_ = 0; node_ < all; ++node_) {
    const auto& node = description_.nodes[node_];
    at_node(written_[node_], [&] {
      if (const auto* left = find_left(left_, written_[node_])) {
        build_by_torch(*this, node, *left);
      } else {
        find_operator(node.op).build(*this, node);
      }
    });
  }
}

// ---- Steps

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
  Step step;
  step.label = node.label;
  step.implementation = std::move(implementation);
  step.flops = flops;
  step.primitive = primitive;
  step.arguments = std::move(arguments);
  steps_.push_back(std::move(step));
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
  Step step;
  step.label = node.label;
  step.implementation = std::move(implementation);
  step.flops = flops;
  step.kernel = std::move(kernel);
  steps_.push_back(std::move(step));
}

size_t Builder::choose(
    const Node& node,
    const std::string& key,
    const std::vector<Candidate>& candidates,
    const Judge& judge,
    const std::string& about) {
  const auto choice =
      plan::choose(key, candidates, tuning_seconds_, judge, about);
  for (const auto& name : choice.wrong) {
    wrong_.push_back(name + " for " + node.label);
  }
  return choice.index;
}

bool Builder::is_at_border(const Place& from, const Place& to) const {
  return buffers_.holder(from.ref).kind == BufferKind::input ||
         buffers_.holder(to.ref).kind == BufferKind::output;
}

void Builder::copy(int64_t value, const Place& from, const Place& to) {
  Node node;
  node.label = "reorder";
  if (from.blocked || to.blocked) {
    border_copies_ += is_at_border(from, to);
    const auto source = describe(value, from), target = describe(value, to);
    const auto& engine = adeep::engine::cpu_engine();
    const ::zendnn::reorder::primitive_desc reorder(
        engine, source, engine, target, user_scratchpad());
    add_primitive(
        node,
        ::zendnn::reorder(reorder),
        std::string("reorder ") + reorder.impl_info_str(),
        {{ZENDNN_ARG_FROM, source, from.ref}, {ZENDNN_ARG_TO, target, to.ref}});
    return;
  }
  copy_as(sizes(value), item_size(dtype(value)), from, to);
}

void Builder::copy_as(
    const Dims& shape,
    int64_t item_bytes,
    const Place& from,
    const Place& to) {
  check_copied(item_bytes);
  border_copies_ += is_at_border(from, to);
  Node node;
  node.label = "reorder";
  add_copies(*this, node, "copy", {{shape, item_bytes, from, to}});
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
    const auto& places = places_[value];
    const bool there =
        std::any_of(places.begin(), places.end(), [&](const Place& known) {
          const auto& buffer = buffers_[known.ref.buffer];
          return buffer.kind == BufferKind::output && buffer.index == index;
        });
    if (!there) {
      const Place from = place(value);
      const Place to{
          .ref = {add_buffer({.kind = BufferKind::output, .index = index}), 0},
          .strides = outputs_[i].strides};
      copy(value, from, to);
    }
  }
}

std::unique_ptr<Executable> Builder::finish() {
  Packed::fill(pieces_);
  auto [buffers, arena_bytes] = buffers_.lay_out(
      /*share=*/!description_.without.contains("share_memory"), step());
  return std::make_unique<Executable>(
      std::move(steps_),
      std::move(buffers),
      std::move(outputs_),
      std::vector<std::shared_ptr<void>>(pieces_.begin(), pieces_.end()),
      arena_bytes,
      border_copies_,
      std::move(wrong_));
}

} // namespace at::native::zendnn::plan
