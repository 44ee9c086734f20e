// The 'zendnn' device: opaque tensors in ZenDNN's blocked layouts, under the
// PrivateUse1 key. The generated registrations provide its kernels; this file
// replaces upstream's checks of is_mkldnn() outside kernels.
#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/utils/ParamUtils.h>
#include <ATen/native/zendnn/NativeFunctions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>

namespace at::native::zendnn {
namespace {

// The autograd engine starts a thread per device, and forks of a process with
// such threads cannot compute gradients. The engine therefore sees this device
// only once a gradient of a zendnn tensor is recorded, so that other processes
// may fork. The engine may have looked for devices before that.
class GradientThread : torch::autograd::Engine {
 public:
  static bool is_wanted() {
    return wanted;
  }

  static void start() {
    static std::once_flag once;
    std::call_once(once, [] {
      wanted = true;
      try {
        auto& engine = Engine::get_default_engine();
        engine.initialize_device_threads_pool();
        if ((engine.*&GradientThread::device_ready_queues_).empty()) {
          (engine.*&GradientThread::start_device_threads)();
        }
      } catch (const c10::Error&) {
        // In a fork of such a process; backward() reports the error.
      }
    });
  }

 private:
  static inline std::atomic<bool> wanted{false};
};

// One device with one stream. Kernels are synchronous, so an event has happened
// when it is created.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(DeviceType /*type*/) {}
  DeviceType type() const override {
    return DeviceType::PrivateUse1;
  }
  Device getDevice() const override {
    return Device(type(), 0);
  }
  Device exchangeDevice(Device /*device*/) const override {
    return getDevice();
  }
  void setDevice(Device /*device*/) const override {}
  void uncheckedSetDevice(Device /*device*/) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override {
    return GradientThread::is_wanted() ? 1 : 0;
  }
  // Each autograd node of a zendnn tensor calls this.
  c10::Stream getStream(Device /*device*/) const noexcept override {
    GradientThread::start();
    return c10::Stream(c10::Stream::DEFAULT, getDevice());
  }
  c10::Stream getDefaultStream(Device device) const override {
    return getStream(device);
  }
  c10::Stream getNewStream(Device device, int /*priority*/) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return stream;
  }
  void record(
      void** /*event*/,
      const c10::Stream& /*stream*/,
      const DeviceIndex /*device_index*/,
      const c10::EventFlag /*flag*/) const override {}
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override {
    return true;
  }
  bool queryStream(const c10::Stream& /*stream*/) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}
  void synchronizeEvent(void* /*event*/) const override {}
  void synchronizeDevice(const DeviceIndex /*device_index*/) const override {}
  void destroyEvent(void* /*event*/, const DeviceIndex /*device_index*/)
      const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Before torch 2.7 the first two override nothing.
struct Hooks final : PrivateUse1HooksInterface {
  bool isBuilt() const /*override*/ {
    return true;
  }
  // False: code for accelerators (pinned memory, streams) must not find the CPU
  // itself.
  bool isAvailable() const /*override*/ {
    return false;
  }
  bool hasPrimaryContext(DeviceIndex /*device_index*/) const override {
    return false;
  }
  Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK(
        false, "pinned memory needs an accelerator, and none is available");
  }
};

const bool hooks_registered = [] {
  static Hooks hooks;
  RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

// Conversions between dense and blocked and between dtypes, when either side is
// a zendnn tensor. Differentiable, since aten::_to_copy's own autograd formula
// converts the gradient back.
Tensor to_copy(
    const Tensor& self,
    std::optional<ScalarType> dtype,
    std::optional<Layout> /*layout*/,
    std::optional<Device> device,
    std::optional<bool> /*pin_memory*/,
    bool /*non_blocking*/,
    std::optional<MemoryFormat> /*memory_format*/) {
  const auto target = device.value_or(self.device()).type();
  TORCH_CHECK(
      target == kCPU || target == kPrivateUse1,
      "a zendnn tensor can only be moved to the CPU, not to ",
      target,
      "; call .to_dense() first");
  if (!self.is_privateuseone()) {
    return dense_to_zendnn(self, dtype);
  }
  Tensor dense = zendnn_to_dense(self, dtype, std::nullopt);
  return target == kCPU ? dense : dense_to_zendnn(dense, std::nullopt);
}

Tensor to_zendnn(const Tensor& self, std::optional<ScalarType> dtype) {
  return self.to(Device(kPrivateUse1, 0), dtype.value_or(self.scalar_type()));
}

Tensor to_dense(
    const Tensor& self,
    std::optional<ScalarType> dtype,
    std::optional<bool> /*masked_grad*/) {
  return self.to(kCPU, dtype.value_or(self.scalar_type()));
}

// TorchScript compares the constants of a graph.
bool equal(const Tensor& self, const Tensor& other) {
  return self.is_same(other) || (self.sizes() == other.sizes() &&
                                 self.scalar_type() == other.scalar_type() &&
                                 at::equal(self.to(kCPU), other.to(kCPU)));
}

// torch's composite operators that check for the mkldnn layout. Each calls the
// ATen operator that has a zendnn kernel and an autograd formula.

Tensor linear(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias) {
  return at::mkldnn_linear(input, weight, bias);
}

Tensor reshape(const Tensor& self, IntArrayRef shape) {
  return at::_mkldnn_reshape(self, shape);
}

Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  return at::_mkldnn_transpose(self, dim0, dim1);
}

Tensor max_pool2d(
    const Tensor& self,
    IntArrayRef kernel_size,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode) {
  return at::mkldnn_max_pool2d(
      self, kernel_size, stride, padding, dilation, ceil_mode);
}

Tensor max_pool3d(
    const Tensor& self,
    IntArrayRef kernel_size,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode) {
  return at::mkldnn_max_pool3d(
      self, kernel_size, stride, padding, dilation, ceil_mode);
}

Tensor adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  const auto output = expand_param_if_needed(output_size, "output_size", 2);
  const auto dim = self.dim();
  for (int64_t i = 0; i < 2 && dim >= 3; ++i) {
    if (output[i] < 1 || self.size(dim - 2 + i) % output[i] != 0) {
      return to_zendnn(
          at::adaptive_avg_pool2d(self.to(kCPU), output_size), std::nullopt);
    }
  }
  return at::mkldnn_adaptive_avg_pool2d(self, output_size);
}

Tensor convolve(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups) {
  if (input.numel() == 0) {
    return to_zendnn(
        at::convolution(
            input.to(kCPU),
            weight.to(kCPU),
            bias ? std::make_optional(bias->to(kCPU)) : std::nullopt,
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups),
        std::nullopt);
  }
  return transposed
             ? zendnn_convolution_transpose_stub(
                   input,
                   weight,
                   bias,
                   padding,
                   output_padding,
                   stride,
                   dilation,
                   groups)
             : zendnn_convolution(
                   input, weight, bias, padding, stride, dilation, groups);
}

Tensor convolve_with_switches(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    bool /*benchmark*/,
    bool /*deterministic*/,
    bool /*cudnn_enabled*/,
    bool /*allow_tf32*/) {
  return convolve(
      input,
      weight,
      bias,
      stride,
      padding,
      dilation,
      transposed,
      output_padding,
      groups);
}

std::tuple<Tensor, Tensor, Tensor> convolve_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    OptionalIntArrayRef /*bias_sizes*/,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> output_mask) {
  return transposed ? zendnn_convolution_transpose_backward_stub(
                          input,
                          grad_output,
                          weight,
                          padding,
                          output_padding,
                          stride,
                          dilation,
                          groups,
                          output_mask)
                    : zendnn_convolution_backward_stub(
                          input,
                          grad_output,
                          weight,
                          padding,
                          stride,
                          dilation,
                          groups,
                          output_mask);
}

void register_composites(torch::Library& m) {
  m.impl("to_dense", TORCH_FN(to_dense));
  m.impl("linear", TORCH_FN(linear));
  m.impl("reshape", TORCH_FN(reshape));
  m.impl("transpose.int", TORCH_FN(transpose));
  m.impl("max_pool2d", TORCH_FN(max_pool2d));
  m.impl("max_pool3d", TORCH_FN(max_pool3d));
  m.impl("adaptive_avg_pool2d", TORCH_FN(adaptive_avg_pool2d));
}

} // namespace

// Next to aten::to_mkldnn, so that TorchScript also finds x.to_zendnn().
TORCH_LIBRARY_FRAGMENT(aten, m) {
  m.def(
      "to_zendnn(Tensor self, ScalarType? dtype=None) -> Tensor",
      TORCH_FN(to_zendnn));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_copy", TORCH_FN(to_copy));
  m.impl("equal", TORCH_FN(equal));
  m.impl("convolution", TORCH_FN(convolve));
  m.impl("_convolution", TORCH_FN(convolve_with_switches));
  m.impl("convolution_backward", TORCH_FN(convolve_backward));
  register_composites(m);
}

// A composite with a backend kernel loses its decomposition under autograd, so
// the same function is registered for both keys.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  register_composites(m);
}

} // namespace at::native::zendnn
