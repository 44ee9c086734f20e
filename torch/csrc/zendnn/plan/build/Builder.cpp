#include <torch/csrc/zendnn/plan/build/Builder.h>
#include <torch/csrc/zendnn/plan/build/Kernel.h>
#include <torch/csrc/zendnn/plan/build/Product.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/kernels/memory.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <tuple>
#include <utility>

namespace at::native::zendnn::plan {

std::unique_ptr<Executable> Builder::build() {
  place_inputs();
  now_ = {};
  place_constants();
  auto& outputs = program_.outputs;
  for (const auto value : values_.description().outputs) {
    results_.emplace(value, static_cast<int64_t>(outputs.size()));
    outputs.push_back(
        {values_.sizes(value),
         values_.result_strides(value),
         values_.dtype(value)});
  }
  find_slices();
  build_nodes();
  finish_results();
  program_.append(now_.part);
  if (!values_.description().without.contains("fuse_pointwise")) {
    fuse_pointwise(program_.steps, buffers_);
  }
  Packed::fill(program_.pieces);
  pin_constants();
  std::tie(program_.buffers, program_.arena_bytes) =
      std::move(buffers_).lay_out(
          /*share=*/!values_.description().without.contains("share_memory"));
  return std::make_unique<Executable>(std::move(program_));
}

void Builder::pin_constants() {
  for (const auto value : values_.description().constants) {
    const auto index = own_place(value).ref.buffer;
    if (buffers_[index].is_touched) {
      program_.pins.push_back(values_.pin(value));
    } else {
      buffers_.forget(index);
    }
  }
}

void Builder::place_inputs() {
  int64_t tensor = 0;
  for (const auto& input : values_.description().inputs) {
    if (!input.is_number) {
      set_place(
          input.value,
          {.ref = add_buffer({.kind = BufferKind::input, .index = tensor++}),
           .strides = values_.strides(input.value)});
    }
  }
}

void Builder::build_nodes() {
  const auto all = std::ssize(values_.nodes());
  built_.reserve(all);
  const auto is_slice = [&](int64_t value) { return slices_.contains(value); };
  for (node_ = 0; node_ < all; ++node_) {
    if (auto known = increment_.find(values_, node_, is_slice)) {
      repeat(*known);
      built_.push_back(std::move(known));
      ++program_.taken_over;
    } else {
      at_node(
          values_.written(node_), [&] { build_node(*values_.nodes()[node_]); });
      increment_.follow(values_, node_, now_);
      built_.push_back(finish());
    }
    program_.append(built_.back()->part);
  }
}

void Builder::build_node(const Node& node) {
  const auto build = node.fallback ? build_by_torch : row_of(node.op).build;
  build(*this, node);
}

void Builder::repeat(const NodeBuild& build) {
  for (const auto& buffer : build.part.buffers) {
    buffers_.add(buffer, buffer.first);
  }
  for (const auto& at : build.places) {
    add_place(at);
  }
  for (const auto& [ref, step] : build.touched) {
    buffers_.touch(ref, step);
  }
}

bool Builder::is_timed() const {
  return std::all_of(built_.begin(), built_.end(), [](const auto& build) {
    return build->is_timed;
  });
}

Predecessor Builder::predecessor() && {
  return {
      std::move(values_).inferred(),
      std::move(built_constants_),
      std::move(built_),
      layout_,
      at::get_num_threads(),
      tunes_};
}

// ---- Steps

std::vector<TensorSpec> Builder::operands_of(const Node& node) const {
  const auto read = node.reads();
  std::vector<TensorSpec> specs;
  specs.reserve(read.size());
  for (const auto value : read) {
    if (!values_.is_number(value)) {
      specs.push_back(values_.spec(value));
    }
  }
  return specs;
}

double Builder::bytes_of(const Node& node) const {
  double bytes = 0;
  const auto add = [&](int64_t value) {
    if (!values_.is_number(value)) {
      bytes += static_cast<double>(
          count(values_.sizes(value)) * item_size(values_.dtype(value)));
    }
  };
  const auto read = node.reads();
  std::for_each(read.begin(), read.end(), add);
  std::for_each(node.outputs.begin(), node.outputs.end(), add);
  return bytes;
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
    touch(argument.ref);
  }
  auto step = primitive_step(primitive, std::move(arguments));
  step.label = node.label;
  step.node = node_;
  step.implementation = std::move(implementation);
  step.flops = flops;
  step.bytes = bytes_of(node);
  step.operands = operands_of(node);
  add_step(std::move(step));
}

void Builder::add_kernel(
    const Node& node,
    std::string implementation,
    c10::ArrayRef<Ref> touched,
    std::function<void(const Frame&)> kernel,
    double flops,
    std::optional<zendnn_primitive_kind_t> kind) {
  for (const auto ref : touched) {
    touch(ref);
  }
  add_step(
      {.label = node.label,
       .node = node_,
       .implementation = std::move(implementation),
       .flops = flops,
       .bytes = bytes_of(node),
       .operands = operands_of(node),
       .kernel = std::move(kernel),
       .kind = kind.value_or(row_of(node.op).kind)});
}

void Builder::add_in_torch(
    const Node& node,
    c10::ArrayRef<Ref> touched,
    std::function<void(const Frame&)> run) {
  for (const auto ref : touched) {
    touch(ref);
  }
  add_step(
      {.label = node.label,
       .node = node_,
       .implementation = "torch " + name_of(node.op),
       .reason = node.fallback->reason,
       .bytes = bytes_of(node),
       .operands = operands_of(node),
       .kernel = std::move(run)});
}

void Builder::add_pointwise(
    const Node& node,
    zendnn_primitive_kind_t kind,
    std::string implementation,
    Pointwise chain) {
  for (const auto& place : chain.places) {
    touch(place.ref);
  }
  auto step = pointwise_step(std::move(chain));
  step.label = node.label;
  step.node = node_;
  step.kind = kind;
  step.implementation = std::move(implementation);
  step.bytes = bytes_of(node);
  step.operands = operands_of(node);
  add_step(std::move(step));
}

Choice Builder::choose(
    const Node& node,
    const std::string& key,
    const std::vector<Candidate>& candidates,
    const Judge& judge,
    const std::string& about,
    const std::string& state) {
  auto choice =
      plan::choose(key, candidates, tuning_seconds_, judge, about, state);
  for (const auto& name : choice.wrong) {
    now_.part.wrong.push_back(name + " for " + node.label);
  }
  now_.is_timed = now_.is_timed && choice.is_timed;
  now_.is_final =
      now_.is_final && choice.wrong.empty() && (choice.is_timed || !tunes_);
  return choice;
}

std::shared_ptr<const Implementation> Builder::chosen(
    const std::string& problem) {
  auto implementation = chosen_.find(problem);
  if (implementation != nullptr) {
    now_.part.chosen.push_back(implementation);
  }
  return implementation;
}

void Builder::set_chosen(
    const std::string& problem,
    const std::shared_ptr<const Implementation>& implementation) {
  now_.part.chosen.push_back(
      chosen_.get(problem, [&] { return implementation; }));
}

bool Builder::is_at_border(const Place& from, const Place& to) const {
  return buffers_.holder(from.ref).kind == BufferKind::input ||
         buffers_.holder(to.ref).kind == BufferKind::output;
}

void Builder::copy(int64_t value, const Place& from, const Place& to) {
  const Node reorder{
      .op = Op::contiguous,
      .inputs = {value_operand(value)},
      .label = "reorder"};
  if (!from.blocked && !to.blocked) {
    copy_for(
        reorder,
        values_.sizes(value),
        item_size(values_.dtype(value)),
        from,
        to);
  } else {
    now_.part.border_copies += is_at_border(from, to);
    const auto source = describe(value, from), target = describe(value, to);
    const auto& engine = adeep::engine::cpu_engine();
    const ::zendnn::reorder::primitive_desc desc(
        engine, source, engine, target, user_scratchpad());
    add_primitive(
        reorder,
        ::zendnn::reorder(desc),
        std::string("reorder ") + desc.impl_info_str(),
        {{ZENDNN_ARG_FROM, source, from.ref}, {ZENDNN_ARG_TO, target, to.ref}});
  }
}

void Builder::copy_for(
    const Node& node,
    const Dims& shape,
    int64_t item_bytes,
    const Place& from,
    const Place& to) {
  check_copied(item_bytes);
  now_.part.border_copies += is_at_border(from, to);
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
    std::vector<Copy> copies) {
  c10::SmallVector<Ref, 8> touched;
  for (const auto& copy : copies) {
    touched.push_back(copy.from.ref);
    touched.push_back(copy.to.ref);
  }
  builder.add_kernel(
      node,
      implementation,
      touched,
      [copies = std::move(copies)](const Frame& frame) {
        for (const auto& copy : copies) {
          copy.run(frame);
        }
      },
      /*flops=*/0,
      zendnn_reorder);
}

void Builder::finish_results() {
  for (size_t i = 0; i < values_.description().outputs.size(); ++i) {
    const auto value = values_.description().outputs[i];
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
