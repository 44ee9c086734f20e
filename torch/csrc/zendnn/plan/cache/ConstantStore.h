// A plan's constants, and which of them are in memory only as they are packed.
#pragma once

#include <torch/csrc/zendnn/plan/cache/Packed.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace at::native::zendnn::plan {

// Only whole pages can be released; smaller constants are not worth it.
inline constexpr size_t kLeastReleasedBytes = size_t{64} << 10;

// Weights that nobody but the plan holds would be there twice, plain and
// packed. release() gives the pages of the plain ones back to the system, and
// pin() unpacks them to the same address. Thus a constant's elements may only
// be read while it is pinned. All functions can be called by several threads.
class C10_EXPORT ConstantStore
    : public std::enable_shared_from_this<ConstantStore> {
 public:
  // The constant stays in memory as long as one of these exists.
  using Pin = std::shared_ptr<const void>;

  // What constants were packed into, one behind the other.
  struct Form {
    std::vector<int64_t> parts; // the constants
    std::shared_ptr<Piece> piece;
    ::zendnn::memory::desc plain, packed;
  };

  explicit ConstantStore(Tensors constants);

  // With sizes, strides and dtypes; elements are there while pinned.
  const Tensors& tensors() const {
    return constants_;
  }
  // Unpacks the constant if need be. Throws bad_alloc or ZenDNN's errors.
  Pin pin(int64_t index);
  // All constants with their elements, which the caller may keep: copies of
  // those that are released.
  Tensors whole();
  // The same, where they lie, so that those who read them at many calls do not
  // unpack them each time.
  Tensors restored();

  // Notes forms that constants may be released for. Those that drop elements,
  // or change their bits, are found when they are unpacked.
  void offer(const std::vector<Form>& forms);
  // Releases what can be: constants that are packed, that nobody has pinned and
  // whose memory nobody else refers to. Nothing else changes where it fails.
  void release() noexcept;
  // The same, now and then: calls cost next to nothing, and there is a bounded
  // number of attempts.
  void release_later() noexcept;
  // Whether it is released, or could be if it were packed and not pinned.
  bool is_owned(int64_t index) const;
  int64_t released_bytes() const;

 private:
  struct Offer {
    std::vector<int64_t> parts;
    std::weak_ptr<Piece> piece;
    ::zendnn::memory::desc plain, packed;
    bool is_proven = false;  // unpacking gives the constants' bits
    bool is_refuted = false; // it does not
  };

  // The caller of these holds the lock.
  bool is_sole_holder(int64_t index) const;
  bool holds_bits(const Form& form) const;
  void release(Offer& offer);
  void bring_back(int64_t index);
  // One that leaves the plan: whoever has it may write to it.
  Tensor handed_out(int64_t index);

  Tensors constants_;
  mutable std::mutex mutex_;
  std::vector<int> pins_; // of each constant
  // Of each released constant, the form that has its elements; else null.
  std::vector<std::shared_ptr<const Form>> kept_;
  std::vector<Offer> offers_;
  std::atomic<bool> waits_ = false; // an offer may serve later
  std::atomic<uint32_t> calls_ = 0; // of release_later() since the last offers
};

} // namespace at::native::zendnn::plan
