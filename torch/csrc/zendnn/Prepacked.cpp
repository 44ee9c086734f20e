// torch.backends.zendnn.prepack: linear layers and convolutions whose weights
// are packed once. A packed layer is known by a number, and the operator
// zendnn::prepacked gets its plain weights too: they say whether the pack is
// still good, and serve wherever a pack cannot.
#include <torch/csrc/zendnn/Prepacked.h>
#include <torch/csrc/zendnn/plan/Tuner.h>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Conv.h>
#include <ATen/native/zendnn/NativeFunctions.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/Primitives.h>
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/ZENDNNCommon.h>
#include <ATen/native/zendnn/cpu/Overrides.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/linear.h>
#include <c10/util/Synchronized.h>
#include <torch/library.h>

#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <tuple>
#include <unordered_map>

namespace at::native::zendnn {
namespace {

namespace why = cpu::why;
using cpu::Reason;
using ::zendnn::matmul;
using ::zendnn::memory;

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
  // Rows, or pixels.
  int64_t points() const {
    return x.numel() / (is_linear() ? x.sizes().back() : x.size(1));
  }
  // Those that torch has with channels last stay so; a line has none.
  bool has_channels_last() const {
    return weight.dim() > 3 && mkldnn_conv_use_channels_last(x, weight);
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

// ---- Linear layers

// x · weightᵀ + bias for a number of rows.
using Product = std::shared_ptr<const matmul::primitive_desc>;

// The weights are (in, out). Nothing when ZenDNN has no fast code for it.
Product make_product(
    int64_t rows,
    ScalarType dtype,
    const memory::desc& weight,
    const Tensor& bias) {
  const auto matrix = [](int64_t rows, int64_t columns, ScalarType dtype) {
    return memory::desc(
        {rows, columns}, get_zendnn_dtype(dtype), memory::format_tag::ab);
  };
  const auto inputs = weight.get_dims()[0], outputs = weight.get_dims()[1];
  const auto product = std::make_shared<const matmul::primitive_desc>(
      adeep::engine::cpu_engine(),
      matrix(rows, inputs, dtype),
      weight,
      bias.defined() ? matrix(1, outputs, bias.scalar_type()) : memory::desc(),
      matrix(rows, outputs, dtype),
      ::zendnn::primitive_attr(),
      /*allow_empty=*/true);
  return *product && !is_reference(product->impl_info_str()) ? product
                                                             : nullptr;
}

Tensor pack_linear(const Tensor& weight) {
  // The format hardly depends on the number of rows: this one serves all.
  constexpr int64_t kRows = 16;
  const auto from = itensor_view_from_dense(weight.t());
  const auto product = make_product(
      kRows,
      weight.scalar_type(),
      {from.get_dims(), from.get_data_type(), memory::format_tag::any},
      {});
  if (!product) {
    return {};
  }
  adeep::tensor packed;
  packed.init(product->weights_desc());
  packed.feed_from(from);
  return new_with_itensor_zendnn(
      std::move(packed), weight.scalar_type(), Device(kPrivateUse1));
}

Tensor multiply(const Call& of, const Tensor& packed, const Product& product) {
  DimVector sizes(of.x.sizes());
  sizes.back() = packed.size(1);
  Tensor out = at::detail::empty_cpu(sizes, of.x.options());
  thread_local Recent<Product, BoundPrimitive> bound;
  const auto& primitive = bound.find(product, [](const Product& desc) {
    return BoundPrimitive(
        matmul(*desc),
        {{ZENDNN_ARG_SRC, desc->src_desc()},
         {ZENDNN_ARG_WEIGHTS, desc->weights_desc()},
         {ZENDNN_ARG_BIAS, desc->bias_desc()},
         {ZENDNN_ARG_DST, desc->dst_desc()}});
  });
  primitive.run(
      {{ZENDNN_ARG_SRC, of.x.const_data_ptr()},
       {ZENDNN_ARG_WEIGHTS, itensor_from_zendnn(packed).get_data_handle()},
       {ZENDNN_ARG_BIAS,
        of.bias.defined() ? of.bias.const_data_ptr() : nullptr},
       {ZENDNN_ARG_DST, out.mutable_data_ptr()}});
  return out;
}

// ---- Convolutions

// Images as the kernel reads them. A line is an image of a single row.
Call as_images(Call of) {
  const auto spatial = of.x.dim() - 2;
  of.stride = in_each(of.stride, spatial);
  of.padding = in_each(of.padding, spatial);
  of.dilation = in_each(of.dilation, spatial);
  of.x = of.x.contiguous(
      !of.has_channels_last() ? MemoryFormat::Contiguous
      : spatial == 3          ? MemoryFormat::ChannelsLast3d
                              : MemoryFormat::ChannelsLast);
  if (spatial == 1) {
    of.x = of.x.unsqueeze(2);
    of.stride = with_height(of.stride, 1);
    of.padding = with_height(of.padding, 0);
    of.dilation = with_height(of.dilation, 1);
  }
  return of;
}

Tensor pack_convolution(const Tensor& weight, const Call& of) {
  const auto images = as_images(of);
  return (
      weight.dim() == 5 ? zendnn_reorder_conv3d_weight
                        : zendnn_reorder_conv2d_weight)(
      weight.dim() == 3 ? weight.unsqueeze(2) : weight,
      images.padding,
      images.stride,
      images.dilation,
      of.groups,
      of.has_channels_last() ? OptionalIntArrayRef(images.x.sizes())
                             : OptionalIntArrayRef());
}

Tensor convolve(const Call& of, const Tensor& packed) {
  const auto images = as_images(of);
  const auto run = [&](auto convolution, auto... more) {
    return convolution(
        images.x,
        packed,
        of.bias,
        images.padding,
        images.stride,
        images.dilation,
        of.groups,
        more...);
  };
  if (of.has_channels_last()) {
    using Scalars = torch::List<std::optional<Scalar>>;
    return run(zendnn_convolution_pointwise, "none", Scalars(), std::nullopt);
  }
  const auto out = run(zendnn_convolution);
  return of.x.dim() == 3 ? out.squeeze(2) : out;
}

// ---- Layers

// How inputs of one size are computed: on plain weights if none are packed.
struct Way {
  Tensor packed{};
  Product product{}; // of a linear layer

  Tensor run(const Call& of) const {
    return !packed.defined() ? run_plain(of)
           : product         ? multiply(of, packed, product)
                             : convolve(of, packed);
  }
};

// The faster one of packed weights and plain ones. Timed once in a process for
// layers alike and inputs of about one size.
Way choose(const Call& of, const Tensor& packed) {
  const auto dtype = of.x.scalar_type();
  const auto points = of.points();
  // One row reads each weight once however they lie, and is bound by that.
  if (!packed.defined() || (of.is_linear() && points == 1 && dtype == kFloat)) {
    return {};
  }
  Way way{packed};
  if (of.is_linear()) {
    way.product = make_product(
        points, dtype, itensor_from_zendnn(packed).get_desc(), of.bias);
    if (!way.product) {
      return {};
    }
  }
  std::ostringstream key;
  key << "prepacked " << of.weight.sizes() << IntArrayRef(of.stride)
      << IntArrayRef(of.padding) << IntArrayRef(of.dilation) << of.groups << ' '
      << toString(of.weight.scalar_type()) << ' ' << toString(dtype)
      << (of.bias.defined() ? " bias " : " ")
      << (of.has_channels_last() ? "channels last " : "")
      << std::bit_width(static_cast<uint64_t>(points - 1)) << " threads "
      << at::get_num_threads();
  double seconds = plan::tuning_budget();
  const auto chosen = plan::choose(
      key.str(),
      {{"packed", [&] { way.run(of); }}, {"plain", [&] { run_plain(of); }}},
      seconds);
  plan::save_choices();
  return chosen.index == 0 ? way : Way{};
}

class Layer {
 public:
  Tensor run(const Call& of);

 private:
  struct Pack {
    Tensor packed; // undefined where ZenDNN has no format for it
    // By rows or pixels, threads, and whether there is a bias.
    Recent<std::tuple<int64_t, int, bool>, Way> ways;
  };

  bool is_stale(const Tensor& weight) const;
  Way find_way(const Call& of);

  std::mutex mutex_;
  // The weights that all packs are made of. Holding them here, no others come
  // to lie at their address.
  Tensor weight_;
  int64_t version_ = 0;
  std::map<std::pair<ScalarType, bool>, Pack> packs_; // by channels-last, too
};

bool Layer::is_stale(const Tensor& weight) const {
  return !weight_.defined() || version_ != weight._version() ||
         weight_.const_data_ptr() != weight.const_data_ptr() ||
         weight_.scalar_type() != weight.scalar_type() ||
         weight_.sizes() != weight.sizes() ||
         weight_.strides() != weight.strides();
}

Way Layer::find_way(const Call& of) {
  std::lock_guard lock(mutex_);
  if (is_stale(of.weight)) {
    packs_.clear();
    weight_ = of.weight.detach();
    version_ = of.weight._version();
  }
  const auto dtype = of.x.scalar_type();
  const auto [found, is_new] =
      packs_.try_emplace({dtype, of.has_channels_last()});
  auto& pack = found->second;
  if (is_new) {
    const auto weight = of.weight.to(dtype).contiguous();
    pack.packed =
        of.is_linear() ? pack_linear(weight) : pack_convolution(weight, of);
  }
  return pack.ways.find(
      {of.points(), at::get_num_threads(), of.bias.defined()},
      [&](const auto&) { return choose(of, pack.packed); });
}

Tensor Layer::run(const Call& of) {
  const auto way = find_way(of);
  if (!way.packed.defined() && listening()) {
    leave_to_torch("plain weights, which are as fast here");
  }
  return way.run(of);
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

// Why plain weights serve; where it is for an error, torch reports that.
Reason why_not(const Call& of) {
  const auto& [x, weight, bias, stride, padding, dilation, groups, layer, as] =
      of;
  const auto dtype = as.value_or(weight.scalar_type());
  // What is timed may differ from process to process.
  if (deterministic() || at::globalContext().deterministicAlgorithms()) {
    return "results that are to be the same from run to run";
  }
  if (weight.is_inference()) {
    return "a weight of inference mode: nothing would tell that it changed";
  }
  if (x.scalar_type() != dtype ||
      (bias.defined() && bias.scalar_type() != dtype)) {
    return why::kTypes;
  }
  if (!is_dense(x) || !is_dense(weight)) {
    return why::kLayout;
  }
  if (x.numel() == 0 || weight.numel() == 0) {
    return why::kEmpty;
  }
  if (!takes_dtype(dtype)) {
    return why::kType;
  }
  if (find_layer(layer) == nullptr) {
    return "a layer of another process, or that is gone";
  }
  if (!of.is_linear()) {
    return x.dim() != weight.dim() || x.dim() < 3 || x.dim() > 5
               ? why::kSizes
               : cpu::why_not_window(
                     x,
                     weight,
                     bias,
                     stride,
                     padding,
                     dilation,
                     false,
                     {0},
                     groups);
  }
  return bias.defined() && (!is_dense(bias) || bias.dim() != 1 ||
                            bias.size(0) != weight.size(0))
             ? why::kParameter
         : x.dim() == 0 || x.sizes().back() != weight.size(1) ? why::kSizes
         : !x.is_contiguous()                                 ? why::kOrder
                                                              : nullptr;
}

Tensor run_packed(const Call& given) {
  const auto layer = find_layer(given.layer);
  if (layer == nullptr) { // another thread has just forgotten it
    return run_plain(given);
  }
  auto of = given;
  of.bias = of.bias.defined() ? of.bias.contiguous() : of.bias;
  return layer->run(of);
}

// A kernel of the operator, or what it asks first.
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

using Packed = cpu::Row<
    "zendnn::prepacked",
    cpu::Needs::primitives,
    kernel<why_not>,
    kernel<run_packed>,
    kernel<run_plain>>;

Tensor dispatch(const Call& of) {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(Packed::name, "")
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
  const auto needs_grad = [](const Tensor& t) {
    return t.defined() &&
           (t.requires_grad() || t._fw_grad(/*level=*/0).defined());
  };
  TORCH_CHECK(
      !at::GradMode::is_enabled() ||
          !(needs_grad(of.x) || needs_grad(of.weight) || needs_grad(of.bias)),
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

// The tag for operands whose strides a compiler must not change; the weaker one
// where torch (before 2.8) has no other.
template <typename Tag>
constexpr Tag strides_kept() {
  if constexpr (requires { Tag::needs_exact_strides; }) {
    return Tag::needs_exact_strides;
  } else {
    return Tag::needs_fixed_stride_order;
  }
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
  at(c10::DispatchKey::CPU, Packed::call);
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
