#include <torch/csrc/zendnn/plan/build/Product.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/tune/Trial.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Info.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

// Whether the scratchpad keeps within its bound; a verbose line says if not.
bool is_affordable(const Implementation& implementation) {
  const auto bytes = [](const memory::desc& desc) {
    return static_cast<int64_t>(desc.get_size());
  };
  const auto operands = bytes(implementation.source) +
                        bytes(implementation.weights) +
                        bytes(implementation.result);
  const auto wanted = bytes(implementation.scratchpad);
  if (wanted <= scratchpad_bound(operands)) {
    return true;
  }
  if (verbose() > 0) {
    std::printf(
        "zendnn_verbose,refuse,%s,a scratchpad of %lld bytes for %lld of "
        "operands\n",
        implementation.name.c_str(),
        static_cast<long long>(wanted),
        static_cast<long long>(operands));
  }
  return false;
}

// Whether one choice can have both.
bool are_alternatives(const Implementation& a, const Implementation& b) {
  return a.source == b.source && a.result == b.result &&
         (a.weights != b.weights || a.implementation != b.implementation);
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

// Type, sizes and layout; `about` rounds the first size up to one that its
// neighbours share.
std::string text_of(const memory::desc& desc, bool about = false) {
  std::ostringstream text;
  const auto list = [&](char before, const Dims& numbers) {
    for (const auto number : numbers) {
      text << std::exchange(before, ',') << number;
    }
  };
  if (desc.is_zero()) {
    return " none";
  }
  text << ' ' << static_cast<int>(desc.get_data_type());
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

} // namespace

void Product::set_bias() {
  if (has(node_, 2)) {
    const auto bias = tensor(node_, 2);
    bias_ = memory::desc(
        builder_.values().sizes(bias),
        type_of(builder_.values().dtype(bias)),
        memory::format_tag::x);
  }
}

void Product::build() {
  struct Way {
    Addition addition;
    std::optional<Place> place;
  };
  std::vector<Way> ways;
  if (const auto place = accumulator(builder_, node_)) {
    ways.push_back({Addition::accumulate, place});
  }
  const auto slice = builder_.target(node_.output());
  for (const auto addition :
       {Addition::read, Addition::functions, Addition::none}) {
    if (slice) {
      ways.push_back({addition, slice});
    }
    ways.push_back({addition, std::nullopt});
  }
  for (const bool slow : {false, true}) {
    for (const auto& [addition, place] : ways) {
      const auto layout = describe_result(place);
      if (!layout || (place && slow)) { // a copy is faster than a slow one
        continue;
      }
      place_ = place;
      result_ = *layout;
      const auto attached =
          attach(builder_, node_, addition, [&](int64_t x) { return see(x); });
      if (addition == Addition::accumulate && !attached.accumulates) {
        continue; // an earlier post-op is a step of its own
      }
      if (bias_apart_ && attached.taken > 0) {
        continue;
      }
      if (const auto implementation = choose(attached, slow)) {
        return add(*implementation, attached);
      }
    }
  }
  refuse(
      "a " + name_ +
      (lacks_room_ ? " whose weights ZENDNN_PACKED_MEMORY lets nobody pack"
                   : " that ZenDNN does not do"));
}

std::vector<Implementation> Product::find(const Attached& attached, bool slow)
    const {
  std::vector<Implementation> found;
  visit(attached.attributes, [&](const Implementation& implementation) {
    if (implementation.is_slow && !(slow && found.empty())) {
      return false; // all that come after it are slow
    }
    if (is_affordable(implementation) &&
        std::all_of(found.begin(), found.end(), [&](const auto& other) {
          return are_alternatives(implementation, other);
        })) {
      found.push_back(implementation);
    }
    return found.size() < most_;
  });
  return found;
}

Implementation Product::reference(const Attached& attached) const {
  std::optional<Implementation> found;
  visit(attached.attributes, [&](Implementation implementation) {
    if (is_reference(implementation.name)) {
      found = std::move(implementation);
    }
    return !found;
  });
  if (!found) {
    refuse("a " + name_ + " that has no reference");
  }
  return *found;
}

std::shared_ptr<const Implementation> Product::choose(
    const Attached& attached,
    bool slow) {
  std::ostringstream problem;
  problem << key(attached, /*about=*/false) << ' ' << slow << ' '
          << place_.has_value() << attached.accumulates << attached.taken;
  for (const auto& post : node_.post) {
    problem << ' ' << post.name() << ' ' << post.alpha << ' ' << post.beta;
  }
  // What is chosen depends on how the weights are packed already.
  const auto weight = tensor(node_, 1);
  const auto forms = weights_ref_ ? std::string() : builder_.forms(weight);
  if (!verifies()) {
    for (const std::string& of : {forms, std::string()}) {
      auto implementation = builder_.chosen(problem.str() + of);
      if (implementation != nullptr &&
          (weights_ref_ || is_served(*implementation, of == forms))) {
        return implementation;
      }
    }
  }
  auto found = find(attached, slow);
  const auto state = weights_ref_ ? std::string() : leave_out_unserved(found);
  if (found.empty()) {
    return nullptr;
  }
  const auto choice = fastest(attached, found, state);
  auto implementation = std::make_shared<Implementation>(found[choice.index]);
  if (implementation->run) { // it holds what is this node's alone
    return implementation;
  }
  implementation->primitive = implementation->make();
  if (choice.is_timed && choice.wrong.empty()) {
    builder_.set_chosen(problem.str() + forms, implementation);
  }
  return implementation;
}

bool Product::is_served(const Implementation& implementation, bool may_pack)
    const {
  const auto supply = builder_.supply(tensor(node_, 1), implementation);
  return supply <= Supply::owned || (may_pack && supply == Supply::room);
}

std::string Product::leave_out_unserved(std::vector<Implementation>& found) {
  std::string state;
  bool is_usual = true;
  for (auto& implementation : found) {
    implementation.supply = builder_.supply(tensor(node_, 1), implementation);
    is_usual = is_usual && (implementation.supply == Supply::lying ||
                            implementation.supply == Supply::room);
    state += "lpor-"[static_cast<size_t>(implementation.supply)];
  }
  const auto is_served = [](const Implementation& implementation) {
    return implementation.supply != Supply::none;
  };
  lacks_room_ =
      lacks_room_ || !std::all_of(found.begin(), found.end(), is_served);
  std::erase_if(found, std::not_fn(is_served));
  // Untimed, the first one serves.
  std::stable_partition(
      found.begin(), found.end(), [](const Implementation& implementation) {
        return implementation.supply == Supply::packed;
      });
  return is_usual ? "" : " packed " + state;
}

std::string Product::key(const Attached& attached, bool about) const {
  std::string text = about ? "about " : "";
  text += name_ + text_of(source_, about) + text_of(weights_) + text_of(bias_) +
          text_of(result_, about) + window_;
  for (size_t i = 0; i < attached.taken; ++i) {
    text += ' ' + node_.post[i].name();
  }
  for (const auto& operand : attached.operands) {
    text += text_of(operand.desc, about);
  }
  return text + " threads " + std::to_string(at::get_num_threads());
}

Trial Product::trial(const Attached& attached) const {
  const auto weight = tensor(node_, 1);
  return {
      weights_,
      builder_.plain_weights(weight, static_cast<int64_t>(weights_.get_size())),
      builder_.lying_weights(weight),
      attached,
      depth_,
      magnification(node_)};
}

Choice Product::fastest(
    const Attached& attached,
    const std::vector<Implementation>& found,
    const std::string& state) {
  if (most_ == 1 || (found.size() < 2 && !verifies())) {
    return {};
  }
  if (const auto part = verifies() ? nullptr : this->part()) {
    const auto again =
        attach(builder_, node_, attached.addition, [&](int64_t operand) {
          return part->see(operand);
        });
    auto same = part->find_again(again, found);
    for (size_t i = 0; i < same.size(); ++i) {
      same[i].name = found[i].name;
      same[i].supply = found[i].supply;
    }
    if (!same.empty()) {
      return part->fastest(again, same, state);
    }
  }
  source_ = found[0].source;
  result_ = found[0].result;
  const auto weight = tensor(node_, 1);
  auto trial = this->trial(attached);
  std::vector<Candidate> candidates;
  const bool is_first = builder_.forms(weight).empty();
  // What is packed takes the place of weights that the plan owns.
  const bool is_owned = std::any_of(
      found.begin(), found.end(), [](const Implementation& implementation) {
        return implementation.supply == Supply::owned;
      });
  for (const auto& implementation : found) {
    candidates.push_back(trial.candidate(implementation));
    if (implementation.supply == Supply::room) {
      // Nearly all convolutions read packed weights.
      candidates.back().handicap = !is_first ? kWorthAnother
                                   : is_owned || !window_.empty()
                                       ? 1
                                       : kWorthPacking;
    } else if (implementation.supply == Supply::owned) {
      candidates.back().handicap = kWorthAnother;
    }
  }
  return builder_.choose(
      node_,
      key(attached, /*about=*/false),
      candidates,
      [&] { return trial.judge(reference(attached)); },
      window_.empty() ? key(attached, /*about=*/true) : "",
      state);
}

void Product::add(
    const Implementation& implementation,
    const Attached& attached) {
  const auto output = node_.output(), weight = tensor(node_, 1);
  auto arguments = attached.read();
  const auto source =
      source_ref_ ? source_ref_
                  : builder_.in_layout(tensor(node_, 0), implementation.source);
  const auto weights =
      weights_ref_ ? weights_ref_ : builder_.packed(weight, implementation);
  if (place_) {
    builder_.set_place(output, *place_);
  } else if (
      implementation.result.get_dims() == builder_.values().sizes(output)) {
    builder_.make(output, implementation.result);
  } else { // the rows of all its matrices
    builder_.make_dense(output);
  }
  arguments.insert(
      arguments.end(),
      {{ZENDNN_ARG_SRC, implementation.source, source},
       {ZENDNN_ARG_WEIGHTS, implementation.weights, weights},
       {ZENDNN_ARG_DST, implementation.result, builder_.place(output).ref}});
  if (!bias_.is_zero()) {
    arguments.push_back(
        {ZENDNN_ARG_BIAS,
         implementation.bias,
         builder_.dense(tensor(node_, 2)).ref});
  }
  const auto flops =
      2. * static_cast<double>(count(builder_.values().sizes(output)) * depth_);
  if (implementation.run) {
    const auto bytes =
        static_cast<int64_t>(implementation.scratchpad.get_size());
    arguments.push_back(
        {ZENDNN_ARG_SCRATCHPAD,
         implementation.scratchpad,
         builder_.scratch(bytes)});
    std::vector<Ref> touched;
    for (const auto& argument : arguments) {
      touched.push_back(argument.ref);
    }
    builder_.add_kernel(
        node_,
        implementation.name,
        touched,
        [run = implementation.run, arguments](const Frame& frame) {
          run([&](int index) -> void* {
            const auto found = std::find_if(
                arguments.begin(), arguments.end(), [&](const auto& argument) {
                  return argument.index == index;
                });
            return found == arguments.end() ? nullptr : frame.at(found->ref);
          });
        },
        flops);
  } else {
    builder_.add_primitive(
        node_,
        implementation.primitive,
        implementation.name,
        std::move(arguments),
        flops);
  }
  if (bias_apart_) {
    add_to_channels(builder_, node_, tensor(node_, 2), output);
  }
  apply_rest(builder_, node_, attached.taken);
  copy_to_slice(builder_, output);
}

} // namespace at::native::zendnn::plan
