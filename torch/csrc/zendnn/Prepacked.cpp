// torch.backends.zendnn.prepack: linear layers and convolutions whose weights
// are packed once, each as a plan of a single node. A packed layer is known by
// a number. The operator zendnn::prepacked also gets its plain weights: they
// show whether the plan is stale, and serve where no plan can.
#include <torch/csrc/zendnn/Prepacked.h>
#include <torch/csrc/zendnn/Tags.h>
#include <torch/csrc/zendnn/plan/Plan.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/UnseenWrites.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/linear.h>
#include <c10/util/Synchronized.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace at::native::zendnn {
namespace {

constexpr const char* kName = "zendnn::prepacked";

// The arguments of the operator. A linear layer has a weight of two dimensions
// and no window; a bias that is not there is undefined.
struct Call {
  Tensor x, weight, bias;
  DimVector stride, padding, dilation;
  int64_t groups, layer;
  std::optional<ScalarType> dtype; // that autocast computes in

  bool is_linear() const {
    return weight.dim() == 2;
  }
};

// On plain weights: batched and traced, on tensors of other kinds, and where
// torch reports an error.
Tensor run_plain(const Call& of) {
  const auto as_asked = [&](const Tensor& t) {
    return of.dtype && t.defined() ? t.to(*of.dtype) : t;
  };
  const auto x = as_asked(of.x), weight = as_asked(of.weight);
  const auto bias = as_asked(of.bias);
  const auto convolve = [&](auto function) {
    return function(
        x, weight, bias, of.stride, of.padding, of.dilation, of.groups);
  };
  switch (weight.dim()) {
    case 2:
      return at::linear(x, weight, bias);
    case 3:
      return convolve([](const auto&... all) { return at::conv1d(all...); });
    case 4:
      return convolve([](const auto&... all) { return at::conv2d(all...); });
    default:
      return convolve([](const auto&... all) { return at::conv3d(all...); });
  }
}

// ---- Layers

// The region of a plan: the layer, with the bias as its second input.
plan::Description describe(const Call& of) {
  plan::Description region{.without = {"choose_layout"}};
  const auto add_input = [&] {
    region.inputs.push_back({region.values, /*is_number=*/false});
    return plan::value_operand(region.values++);
  };
  const auto x = add_input();
  const auto bias = of.bias.defined() ? add_input() : plan::Operand{};
  const auto weight = plan::value_operand(region.values++);
  region.constants = {weight.index};
  region.outputs = {region.values++};
  plan::Node layer{
      .op = plan::Op::linear,
      .inputs = {x, weight, bias},
      .outputs = region.outputs,
      .attributes = plan::attr::linear{},
      .label = kName};
  if (!of.is_linear()) {
    layer.op = plan::Op::convolution;
    layer.attributes = plan::attr::convolution{
        .stride = {of.stride.begin(), of.stride.end()},
        .padding = {of.padding.begin(), of.padding.end()},
        .dilation = {of.dilation.begin(), of.dilation.end()},
        .groups = of.groups};
  }
  region.nodes = {std::move(layer)};
  return region;
}

// The plans of a layer. A change of the weights discards them.
class Layer {
 public:
  c10::intrusive_ptr<plan::Plan> plan(const Call& of);

 private:
  bool is_stale(const Tensor& weight) const;

  std::mutex mutex_;
  // The weights of all plans, held so that no other tensor takes their address.
  Tensor weight_;
  int64_t version_ = 0;
  uint64_t writes_ = 0;
  using Key =
      std::tuple<ScalarType, bool, DimVector, DimVector, DimVector, int64_t>;
  std::map<Key, c10::intrusive_ptr<plan::Plan>> plans_;
};

bool Layer::is_stale(const Tensor& weight) const {
  return !weight_.defined() || version_ != weight._version() ||
         unseen_writes::are_in(weight, writes_) ||
         weight_.const_data_ptr() != weight.const_data_ptr() ||
         weight_.scalar_type() != weight.scalar_type() ||
         weight_.sizes() != weight.sizes() ||
         weight_.strides() != weight.strides();
}

c10::intrusive_ptr<plan::Plan> Layer::plan(const Call& of) {
  std::lock_guard lock(mutex_);
  if (is_stale(of.weight)) {
    plans_.clear();
    weight_ = of.weight.detach();
    version_ = of.weight._version();
    writes_ = unseen_writes::count();
  }
  const auto dtype = of.x.scalar_type();
  auto& plan = plans_[{
      dtype, of.bias.defined(), of.stride, of.padding, of.dilation, of.groups}];
  if (!plan) {
    plan = c10::make_intrusive<plan::Plan>(
        describe(of), std::vector<Tensor>{weight_.to(dtype)}, "prepacked");
  }
  return plan;
}

// The layers of this process by their numbers.
struct Layers {
  std::unordered_map<int64_t, std::shared_ptr<Layer>> by_number;
  int64_t last = 0;
};

c10::Synchronized<Layers>& layers() {
  static auto* all = new c10::Synchronized<Layers>;
  return *all;
}

int64_t add_layer() {
  return layers().withLock([](Layers& all) {
    all.by_number.emplace(++all.last, std::make_shared<Layer>());
    return all.last;
  });
}

void forget_layer(int64_t number) {
  // What is forgotten is destroyed without the lock.
  layers().withLock([=](Layers& all) { return all.by_number.extract(number); });
}

std::shared_ptr<Layer> find_layer(int64_t number) {
  return layers().withLock([=](Layers& all) {
    const auto found = all.by_number.find(number);
    return found == all.by_number.end() ? nullptr : found->second;
  });
}

// ---- The operator

// Why no plan is asked; where it is for an error, torch reports that.
cpu::Reason why_not(const Call& of, const Layer* layer) {
  const auto dtype = of.dtype.value_or(of.weight.scalar_type());
  // What is timed may differ from process to process.
  if (deterministic() || at::globalContext().deterministicAlgorithms()) {
    return "results that are to be the same from run to run";
  }
  if (of.weight.is_inference()) {
    return "a weight of inference mode: nothing would tell that it changed";
  }
  if (of.x.scalar_type() != dtype ||
      (of.bias.defined() && of.bias.scalar_type() != dtype)) {
    return cpu::why::kTypes;
  }
  if (!is_dense(of.x) || !is_dense(of.weight)) {
    return cpu::why::kLayout;
  }
  if (of.x.dim() == 5 && of.x.size(0) == 1 && of.weight.dim() == 5 &&
      mkldnn_conv_use_channels_last(of.x, of.weight)) {
    return cpu::why::kStrides;
  }
  return layer == nullptr ? "a layer of another process, or that is gone"
                          : nullptr;
}

Tensor run(const Call& of) {
  const auto layer = find_layer(of.layer);
  if (const auto reason = why_not(of, layer.get())) {
    const auto operation =
        listening() ? cpu::operation_of(kName, reason, of.x, of.weight, of.bias)
                    : nullptr;
    return run_plain(of);
  }
  const auto plan = layer->plan(of);
  std::vector<Tensor> inputs{of.x};
  if (of.bias.defined()) {
    inputs.push_back(of.bias);
  }
  return plan->takes(inputs, {}) ? plan->run(inputs, {}).front()
                                 : run_plain(of);
}

// A kernel of the operator.
template <auto kRun>
auto kernel(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups,
    int64_t layer,
    std::optional<ScalarType> dtype) {
  return kRun(Call{
      x,
      weight,
      bias.value_or(Tensor()),
      DimVector(stride),
      DimVector(padding),
      DimVector(dilation),
      groups,
      layer,
      dtype});
}

Tensor dispatch(const Call& of) {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(kName, "")
                                 .typed<decltype(kernel<run_plain>)>();
  return handle.call(
      of.x,
      of.weight,
      of.bias.defined() ? std::optional(of.bias) : std::nullopt,
      of.stride,
      of.padding,
      of.dilation,
      of.groups,
      of.layer,
      of.dtype);
}

Tensor refuse_gradients(const Call& of) {
  const auto is_recorded = [](const Tensor& t) {
    return t.defined() && needs_grad(t);
  };
  TORCH_CHECK(
      !at::GradMode::is_enabled() ||
          !(is_recorded(of.x) || is_recorded(of.weight) ||
            is_recorded(of.bias)),
      "a prepacked layer is for inference and computes no gradients: run it "
      "under torch.no_grad(), or train the module that it was made from");
  at::AutoDispatchBelowADInplaceOrView below;
  return dispatch(of);
}

Tensor autocast(const Call& of) {
  const auto casts = [](const Tensor& t) {
    return t.is_floating_point() && t.scalar_type() != kDouble;
  };
  if (!casts(of.x) || !casts(of.weight)) {
    return run_plain(of);
  }
  c10::impl::ExcludeDispatchKeyGuard off(c10::autocast_dispatch_keyset);
  auto lowered = of;
  lowered.dtype = at::autocast::get_autocast_dtype(kCPU);
  for (auto* operand : {&lowered.x, &lowered.bias}) {
    *operand = at::autocast::cached_cast(*lowered.dtype, *operand, kCPU);
  }
  return dispatch(lowered);
}

TORCH_LIBRARY_FRAGMENT(zendnn, m) {
  m.def(
      "prepacked(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] "
      "padding, int[] dilation, int groups, int layer, ScalarType? dtype=None) "
      "-> Tensor",
      {at::Tag::pt2_compliant_tag, strides_kept<at::Tag>()});
  m.def("prepacked_layer() -> int", add_layer);
  m.def("forget_prepacked_layer(int layer) -> ()", forget_layer);
  const auto at = [&m](c10::DispatchKey key, auto* run) {
    m.impl("prepacked", torch::dispatch(key, run));
  };
  at(c10::DispatchKey::CPU, kernel<run>);
  at(c10::DispatchKey::Autograd, kernel<refuse_gradients>);
  at(c10::DispatchKey::AutocastCPU, kernel<autocast>);
  for (const auto key :
       {c10::DispatchKey::FuncTorchBatched,
        c10::DispatchKey::Tracer,
        c10::DispatchKey::NestedTensorCPU,
        c10::DispatchKey::SparseCPU,
        c10::DispatchKey::SparseCsrCPU,
        c10::DispatchKey::MkldnnCPU}) {
    at(key, kernel<run_plain>);
  }
}

} // namespace

Tensor prepacked_linear(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    int64_t layer) {
  return dispatch(
      {x, weight, bias.value_or(Tensor()), {}, {}, {}, 1, layer, {}});
}

} // namespace at::native::zendnn
