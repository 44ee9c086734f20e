// Bernoulli draws, as for dropout: exactly those that torch draws one by one.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/Thresholds.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/kernels/random.h>

#include <cstring>
#include <mutex>

namespace at::native::zendnn::cpu {
namespace {

// False, without any draw, if the engine's state is not a valid one.
bool draw(CPUGeneratorImpl& generator, double p, const Tensor& out) {
  constexpr int kWords = kernels::kStateWords;
  auto engine = generator.engine();
  auto data = engine.data();
  static_assert(data.state_.size() == kWords);
  // left_ == 1 means none: the engine counts down before it draws.
  const int used = data.left_ == 1 ? kWords : static_cast<int>(data.next_);
  if (data.left_ != kWords + 1 - used) {
    return false;
  }
  const int now = kernels::bernoulli(
      {.state = data.state_.data(),
       .used = used,
       .out = out.mutable_data_ptr(),
       .size = out.numel(),
       .p = p,
       .dtype = kernel_dtype(out)});
  data.next_ = now;
  data.left_ = kWords + 1 - now;
  engine.set_data(data);
  generator.set_engine(engine);
  return true;
}

// False if this torch draws differently, for example from MKL.
bool draws_alike() {
  static const bool alike = [] {
    constexpr int64_t kCount = 1000;
    constexpr double kHalf = 0.5;
    auto ours = at::detail::createCPUGenerator();
    auto theirs = at::detail::createCPUGenerator();
    Tensor x = at::detail::empty_cpu({kCount}, kFloat);
    Tensor y = at::detail::empty_cpu({kCount}, kFloat);
    at::cpu::bernoulli_(y, kHalf, theirs);
    return draw(*ours.get<CPUGeneratorImpl>(), kHalf, x) &&
           std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
  }();
  return alike;
}

Reason why_not_bernoulli(
    const Tensor& self,
    double p,
    const std::optional<Generator>& generator) {
  const auto reason = why_no_operand(self);
  return reason != nullptr ? reason
         // Copying the engine from its generator and back takes longer than
         // few draws.
         : self.numel() < value_of(Threshold::bernoulli_numbers)
             ? "too few numbers to gain"
         : !self.is_non_overlapping_and_dense() ? why::kOrder
         : !(p >= 0 && p <= 1)                  ? "a p that is no probability"
         : generator && generator->defined() && !generator->device().is_cpu()
             ? "a generator of another device"
         : !draws_alike() ? "a torch that draws otherwise"
                          : nullptr;
}

Tensor& bernoulli(Tensor& self, double p, std::optional<Generator> generator) {
  {
    auto* source = get_generator_or_default<CPUGeneratorImpl>(
        generator, at::detail::getDefaultCPUGenerator());
    const std::lock_guard<std::mutex> lock(source->mutex_);
    if (draw(*source, p, self)) {
      prepare_kernel(zendnn_eltwise);
      return self;
    }
  }
  leave_to_torch("a generator in a state that it cannot come to by itself");
  return at::cpu::bernoulli_(self, p, std::move(generator));
}

} // namespace

void list_random(torch::Library& m) {
  add_rows<
      Row<"aten::bernoulli_.float", // .12, .13: dropout
          Needs::vectors,
          why_not_bernoulli,
          bernoulli,
          static_cast<decltype(&bernoulli)>(at::cpu::bernoulli_)>>(m);
}

} // namespace at::native::zendnn::cpu
