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
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/ZENDNNCommon.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/linear.h>
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

// What the operator is told beside its input; a linear layer has no window, and
// a weight of two dimensions.
struct Operands {
  Tensor weight, bias; // the bias may be undefined
  IntArrayRef stride, padding, dilation;
  int64_t groups;

  bool is_linear() const {
    return weight.dim() == 2;
  }
};

Tensor run_plain(const Tensor& x, const Operands& of) {
  switch (of.weight.dim()) {
    case 2:
      return at::linear(x, of.weight, of.bias);
    case 3:
      return at::conv1d(
          x, of.weight, of.bias, of.stride, of.padding, of.dilation, of.groups);
    case 4:
      return at::conv2d(
          x, of.weight, of.bias, of.stride, of.padding, of.dilation, of.groups);
    default:
      return at::conv3d(
          x, of.weight, of.bias, of.stride, of.padding, of.dilation, of.groups);
  }
}

Operands converted(Operands of, ScalarType dtype) {
  of.weight = of.weight.to(dtype);
  of.bias = of.bias.defined() ? of.bias.to(dtype) : of.bias;
  return of;
}

// Why torch's own operators serve; they report errors, too.
Reason why_not(const Tensor& x, const Operands& of) {
  const auto dtype = x.scalar_type();
  const auto& [weight, bias, stride, padding, dilation, groups] = of;
  if (!is_dense(x) || !is_dense(weight)) {
    return why::kLayout;
  }
  if (x.numel() == 0 || weight.numel() == 0) {
    return why::kEmpty;
  }
  if (!takes_dtype(dtype)) {
    return why::kType;
  }
  if (bias.defined() &&
      (!is_dense(bias) || bias.dim() != 1 || bias.size(0) != weight.size(0))) {
    return why::kParameter;
  }
  if (of.is_linear()) {
    return x.dim() == 0 || x.sizes().back() != weight.size(1) ? why::kSizes
           : !x.is_contiguous()                               ? why::kOrder
                                                              : nullptr;
  }
  if (x.dim() != weight.dim() || x.size(1) != weight.size(1) * groups) {
    return why::kSizes;
  }
  if (x.dim() == 5 && x.size(0) == 1 &&
      mkldnn_conv_use_channels_last(x, weight)) {
    return why::kStrides;
  }
  const auto spatial = static_cast<size_t>(x.dim() - 2);
  if (stride.size() != spatial || padding.size() != spatial ||
      dilation.size() != spatial) {
    return why::kSizes;
  }
  for (size_t i = 0; i < spatial; ++i) {
    const auto dim = static_cast<int64_t>(i) + 2;
    if (stride[i] < 1 || padding[i] < 0 || dilation[i] < 1 ||
        x.size(dim) + 2 * padding[i] <
            dilation[i] * (weight.size(dim) - 1) + 1) {
      return why::kWindow;
    }
  }
  return nullptr;
}

// ---- Linear layers

// x · weightᵀ + bias for a number of rows. Threads share it, so that the
// scratchpad, which ZenDNN would keep for the thread that made it, is given.
struct Product {
  matmul::primitive_desc desc;
  matmul run;
};

memory::desc rows_of(int64_t rows, int64_t columns, ScalarType dtype) {
  return {{rows, columns}, get_zendnn_dtype(dtype), memory::format_tag::ab};
}

// The weights are (in, out). Nothing when ZenDNN has no fast code for it.
std::shared_ptr<const Product> make_product(
    int64_t rows,
    ScalarType dtype,
    const memory::desc& weight,
    const Tensor& bias) {
  const auto inputs = weight.get_dims()[0], outputs = weight.get_dims()[1];
  const auto& engine = adeep::engine::cpu_engine();
  const auto from = rows_of(rows, inputs, dtype);
  const auto to = rows_of(rows, outputs, dtype);
  ::zendnn::primitive_attr attributes;
  attributes.set_scratchpad_mode(::zendnn::scratchpad_mode::user);
  try {
    const auto desc =
        bias.defined()
            ? matmul::primitive_desc(
                  engine,
                  from,
                  weight,
                  rows_of(1, outputs, bias.scalar_type()),
                  to,
                  attributes)
            : matmul::primitive_desc(engine, from, weight, to, attributes);
    if (std::string(desc.impl_info_str()).find("ref") == std::string::npos) {
      return std::make_shared<const Product>(Product{desc, matmul(desc)});
    }
  } catch (const ::zendnn::error&) { // plain weights serve
  }
  return nullptr;
}

// The format hardly depends on the number of rows: this one serves all.
constexpr int64_t kRowsPackedFor = 16;

Tensor pack_linear(const Tensor& weight) {
  const auto from = itensor_view_from_dense(weight.t());
  const auto product = make_product(
      kRowsPackedFor,
      weight.scalar_type(),
      {from.get_dims(), from.get_data_type(), memory::format_tag::any},
      {});
  if (!product) {
    return {};
  }
  adeep::tensor packed;
  packed.init(product->desc.weights_desc());
  packed.feed_from(from);
  return new_with_itensor_zendnn(
      std::move(packed), weight.scalar_type(), Device(kPrivateUse1));
}

Tensor run_linear(
    const Tensor& x,
    const Tensor& packed,
    const Tensor& bias,
    const Product& product) {
  DimVector sizes(x.sizes());
  sizes.back() = packed.size(1);
  Tensor out = at::detail::empty_cpu(sizes, x.options());
  const auto& engine = adeep::engine::cpu_engine();
  const auto at = [](const Tensor& t) {
    return const_cast<void*>(t.const_data_ptr());
  };
  std::unordered_map<int, memory> arguments{
      {ZENDNN_ARG_SRC, {product.desc.src_desc(), engine, at(x)}},
      {ZENDNN_ARG_WEIGHTS, itensor_from_zendnn(packed)},
      {ZENDNN_ARG_DST, {product.desc.dst_desc(), engine, at(out)}}};
  if (bias.defined()) {
    arguments.insert(
        {ZENDNN_ARG_BIAS, {product.desc.bias_desc(), engine, at(bias)}});
  }
  Tensor scratch;
  if (const auto wanted = product.desc.scratchpad_desc(); !wanted.is_zero()) {
    scratch = at::detail::empty_cpu(
        {static_cast<int64_t>(wanted.get_size())}, TensorOptions(kByte));
    arguments.insert({ZENDNN_ARG_SCRATCHPAD, {wanted, engine, at(scratch)}});
  }
  product.run.execute(adeep::stream::default_stream(), arguments);
  return out;
}

// ---- Convolutions

// The images as the kernel reads them: those that torch has lie with channels
// last do, and the others in torch's own order, since its results do too.
struct Images {
  Tensor x;
  bool channels_last = false;
  DimVector stride, padding, dilation;

  Images(const Tensor& from, const Operands& of)
      : stride(of.stride), padding(of.padding), dilation(of.dilation) {
    if (from.dim() == 3) {
      x = from.contiguous().unsqueeze(2); // as torch: never channels last
      stride = with_height(stride, 1);
      padding = with_height(padding, 0);
      dilation = with_height(dilation, 1);
      return;
    }
    channels_last = mkldnn_conv_use_channels_last(from, of.weight);
    x = from.contiguous(
        !channels_last    ? MemoryFormat::Contiguous
        : from.dim() == 5 ? MemoryFormat::ChannelsLast3d
                          : MemoryFormat::ChannelsLast);
  }
};

Tensor
pack_convolution(const Tensor& weight, const Images& images, int64_t groups) {
  const auto size = images.channels_last ? OptionalIntArrayRef(images.x.sizes())
                                         : OptionalIntArrayRef();
  return (
      weight.dim() == 5 ? zendnn_reorder_conv3d_weight
                        : zendnn_reorder_conv2d_weight)(
      weight.dim() == 3 ? weight.unsqueeze(2) : weight,
      images.padding,
      images.stride,
      images.dilation,
      groups,
      size);
}

Tensor run_convolution(
    const Images& images,
    const Tensor& packed,
    const Tensor& bias,
    int64_t groups,
    bool as_one_dimension) {
  if (images.channels_last) {
    return zendnn_convolution_pointwise(
        images.x,
        packed,
        bias,
        images.padding,
        images.stride,
        images.dilation,
        groups,
        "none",
        torch::List<std::optional<Scalar>>(),
        std::nullopt);
  }
  Tensor out = zendnn_convolution(
      images.x,
      packed,
      bias,
      images.padding,
      images.stride,
      images.dilation,
      groups);
  return as_one_dimension ? out.squeeze(2) : out;
}

// ---- Layers

class Layer {
 public:
  Tensor run(const Tensor& x, const Operands& of, ScalarType dtype);

 private:
  // How inputs of one size are computed.
  struct Way {
    bool packed = false;
    std::shared_ptr<const Product> product{}; // of a linear layer
  };
  struct Pack {
    Tensor packed; // undefined where ZenDNN has no format for it
    // By rows or pixels, threads, and whether there is a bias.
    std::map<std::tuple<int64_t, int, bool>, Way> ways;
  };

  // Of the weights that all packs are made of. Holding them here, no others
  // come to lie at their address.
  bool is_stale(const Tensor& weight) const;
  Way choose(
      const Tensor& x,
      const Operands& of,
      ScalarType dtype,
      const Tensor& packed,
      const Images* images) const;

  std::mutex mutex_;
  Tensor weight_;
  int64_t version_ = 0;
  std::map<std::pair<ScalarType, bool>, Pack> packs_; // by channels-last, too
};

// More sizes than that are not remembered at a time.
constexpr size_t kMostWays = 256;

bool Layer::is_stale(const Tensor& weight) const {
  return !weight_.defined() || version_ != weight._version() ||
         weight_.const_data_ptr() != weight.const_data_ptr() ||
         weight_.scalar_type() != weight.scalar_type() ||
         weight_.sizes() != weight.sizes() ||
         weight_.strides() != weight.strides();
}

// Packed weights or plain ones, whichever are faster. Timed once in a process
// for layers alike and inputs of about one size.
Layer::Way Layer::choose(
    const Tensor& x,
    const Operands& of,
    ScalarType dtype,
    const Tensor& packed,
    const Images* images) const {
  const auto channels = of.is_linear() ? x.sizes().back() : x.size(1);
  const auto count = x.numel() / channels;
  // One row reads each weight once however they lie, and is bound by that.
  if (!packed.defined() || (of.is_linear() && count == 1 && dtype == kFloat)) {
    return {};
  }
  Way way{.packed = true};
  if (of.is_linear()) {
    way.product = make_product(
        count, dtype, itensor_from_zendnn(packed).get_desc(), of.bias);
    if (!way.product) {
      return {};
    }
  }
  std::ostringstream key;
  key << "prepacked " << of.weight.sizes() << of.stride << of.padding
      << of.dilation << of.groups << ' ' << toString(of.weight.scalar_type())
      << ' ' << toString(dtype) << (of.bias.defined() ? " bias " : " ")
      << (images != nullptr && images->channels_last ? "channels last " : "")
      << std::bit_width(static_cast<uint64_t>(count - 1)) << " threads "
      << at::get_num_threads();
  double seconds = plan::tuning_budget();
  const auto chosen = plan::choose(
      key.str(),
      {{"packed",
        [&] {
          if (images == nullptr) {
            run_linear(x, packed, of.bias, *way.product);
          } else {
            run_convolution(*images, packed, of.bias, of.groups, false);
          }
        }},
       {"plain", [&] { run_plain(x, converted(of, dtype)); }}},
      seconds);
  plan::save_choices();
  return chosen.index == 0 ? way : Way{};
}

Tensor Layer::run(const Tensor& x, const Operands& of, ScalarType dtype) {
  std::optional<Images> images;
  if (!of.is_linear()) {
    images.emplace(x, of);
  }
  const auto channels = of.is_linear() ? x.sizes().back() : x.size(1);
  const std::tuple size(
      x.numel() / channels, at::get_num_threads(), of.bias.defined());
  Tensor packed;
  Way way;
  {
    std::lock_guard lock(mutex_);
    if (is_stale(of.weight)) {
      packs_.clear();
      weight_ = of.weight.detach();
      version_ = of.weight._version();
    }
    const auto [found, is_new] =
        packs_.try_emplace({dtype, images && images->channels_last});
    auto& pack = found->second;
    if (is_new) {
      const auto weight = of.weight.to(dtype).contiguous();
      pack.packed = images ? pack_convolution(weight, *images, of.groups)
                           : pack_linear(weight);
    }
    const auto known = pack.ways.find(size);
    if (known != pack.ways.end()) {
      way = known->second;
    } else {
      way = choose(x, of, dtype, pack.packed, images ? &*images : nullptr);
      if (pack.ways.size() >= kMostWays) {
        pack.ways.clear();
      }
      pack.ways.emplace(size, way);
    }
    packed = pack.packed;
  }
  if (!way.packed) {
    if (listening()) {
      leave_to_torch("plain weights, which are as fast here");
    }
    return run_plain(x, converted(of, dtype));
  }
  return images ? run_convolution(
                      *images, packed, of.bias, of.groups, x.dim() == 3)
                : run_linear(x, packed, of.bias, *way.product);
}

// The layers of this process by their numbers.
class Layers {
 public:
  static Layers& instance() {
    static auto* layers = new Layers;
    return *layers;
  }
  int64_t add() {
    std::lock_guard lock(mutex_);
    layers_.emplace(++last_, std::make_shared<Layer>());
    return last_;
  }
  void remove(int64_t number) {
    std::shared_ptr<Layer> removed; // destroyed without the lock
    std::lock_guard lock(mutex_);
    if (const auto found = layers_.find(number); found != layers_.end()) {
      removed = std::move(found->second);
      layers_.erase(found);
    }
  }
  std::shared_ptr<Layer> find(int64_t number) {
    std::lock_guard lock(mutex_);
    const auto found = layers_.find(number);
    return found == layers_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<Layer>> layers_;
  int64_t last_ = 0;
};

// ---- The operator

constexpr const char* kName = "zendnn::prepacked";
using Prepacked = Tensor(
    const Tensor&,
    const Tensor&,
    const std::optional<Tensor>&,
    IntArrayRef,
    IntArrayRef,
    IntArrayRef,
    int64_t,
    int64_t,
    std::optional<ScalarType>);

const c10::TypedOperatorHandle<Prepacked>& prepacked_operator() {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(kName, "")
                                 .typed<Prepacked>();
  return handle;
}

// On plain weights: batched and traced, and on tensors of other kinds.
Tensor plain(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups,
    int64_t /*layer*/,
    std::optional<ScalarType> dtype) {
  const Operands of{
      weight, bias.value_or(Tensor()), stride, padding, dilation, groups};
  return dtype ? run_plain(x.to(*dtype), converted(of, *dtype))
               : run_plain(x, of);
}

// Runs a packed layer into out, or says why not.
Reason run_packed(
    Tensor& out,
    const Tensor& x,
    Operands of,
    int64_t layer,
    std::optional<ScalarType> dtype) {
  if (!enabled()) {
    return why::kOff;
  }
  // What is timed may differ from process to process.
  if (deterministic() || at::globalContext().deterministicAlgorithms()) {
    return "results that are to be the same from run to run";
  }
  if (of.weight.is_inference()) {
    return "a weight of inference mode: nothing would tell that it changed";
  }
  if (!dtype &&
      (x.scalar_type() != of.weight.scalar_type() ||
       (of.bias.defined() && of.bias.scalar_type() != x.scalar_type()))) {
    return why::kTypes;
  }
  const Tensor input = dtype ? x.to(*dtype) : x;
  if (of.bias.defined()) {
    of.bias = of.bias.to(input.scalar_type());
  }
  if (const auto reason = why_not(input, of)) {
    return reason;
  }
  of.bias = of.bias.defined() ? of.bias.contiguous() : of.bias;
  const auto found = Layers::instance().find(layer);
  if (found == nullptr) {
    return "a layer of another process, or that is gone";
  }
  out = found->run(input, of, input.scalar_type());
  return nullptr;
}

Tensor packed(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups,
    int64_t layer,
    std::optional<ScalarType> dtype) {
  std::unique_ptr<Operation> operation;
  if (listening()) {
    operation = cpu::told(kName, nullptr, x, weight, bias);
  }
  Tensor out;
  const auto reason = run_packed(
      out,
      x,
      {weight, bias.value_or(Tensor()), stride, padding, dilation, groups},
      layer,
      dtype);
  if (reason == nullptr) {
    return out;
  }
  if (operation != nullptr) {
    leave_to_torch(reason);
  }
  return plain(
      x, weight, bias, stride, padding, dilation, groups, layer, dtype);
}

bool needs_grad(const Tensor& t) {
  return t.requires_grad() || t._fw_grad(/*level=*/0).defined();
}

Tensor refuse_gradients(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups,
    int64_t layer,
    std::optional<ScalarType> dtype) {
  TORCH_CHECK(
      !at::GradMode::is_enabled() || !(needs_grad(x) || needs_grad(weight) ||
                                       (has(bias) && needs_grad(*bias))),
      "a prepacked layer is for inference and computes no gradients: run it "
      "under torch.no_grad(), or train the module that it was made from");
  at::AutoDispatchBelowADInplaceOrView below;
  return prepacked_operator().call(
      x, weight, bias, stride, padding, dilation, groups, layer, dtype);
}

Tensor autocast(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups,
    int64_t layer,
    std::optional<ScalarType> dtype) {
  const auto casts = [](const Tensor& t) {
    return t.is_floating_point() && t.scalar_type() != kDouble;
  };
  if (!casts(x) || !casts(weight)) {
    return plain(
        x, weight, bias, stride, padding, dilation, groups, layer, dtype);
  }
  c10::impl::ExcludeDispatchKeyGuard off(c10::autocast_dispatch_keyset);
  const auto to = at::autocast::get_autocast_dtype(kCPU);
  return prepacked_operator().call(
      at::autocast::cached_cast(to, x, kCPU),
      weight,
      bias,
      stride,
      padding,
      dilation,
      groups,
      layer,
      to);
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
  m.def("prepacked_layer() -> int", [] { return Layers::instance().add(); });
  m.def("forget_prepacked_layer(int layer) -> ()", [](int64_t layer) {
    Layers::instance().remove(layer);
  });
  const auto at = [&m](c10::DispatchKey key, Prepacked* kernel) {
    m.impl("prepacked", torch::dispatch(key, kernel));
  };
  at(c10::DispatchKey::CPU, packed);
  at(c10::DispatchKey::Autograd, refuse_gradients);
  at(c10::DispatchKey::AutocastCPU, autocast);
  for (const auto key :
       {c10::DispatchKey::FuncTorchBatched,
        c10::DispatchKey::Tracer,
        c10::DispatchKey::NestedTensorCPU,
        c10::DispatchKey::SparseCPU,
        c10::DispatchKey::SparseCsrCPU,
        c10::DispatchKey::MkldnnCPU}) {
    at(key, plain);
  }
}

} // namespace

Tensor prepacked_linear(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    int64_t layer) {
  return prepacked_operator().call(
      x, weight, bias, {}, {}, {}, 1, layer, std::nullopt);
}

} // namespace at::native::zendnn
