// Constants in other layouts, shared by all executables of a plan.
#pragma once

#include <torch/csrc/zendnn/plan/build/Arena.h>
#include <torch/csrc/zendnn/plan/cache/Shared.h>

#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Primitives.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

// Fills memory from constants. It may run in any thread, and after its maker is
// gone.
using Fill = std::function<void(void*)>;

// Pins weights where they lie.
using Lying = std::function<std::shared_ptr<const void>()>;

// Writes in one layout what `copy` writes in another.
Fill reordered(
    Fill copy,
    const ::zendnn::memory::desc& from,
    const ::zendnn::memory::desc& to);

// The constants that a layer's weights are joined from, mostly a single one.
struct Weight {
  Weight(const Tensors& parts, bool images);

  std::string text{};            // equal for equal tensors of one storage
  const void* address = nullptr; // of the first element
  int64_t bytes = 0;
  bool of_images;
  // An address stays taken while these refer to what lay there.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages{};
};

// Memory that is filled once.
class Piece {
 public:
  Piece(int64_t bytes, Fill fill);
  // A form of a weight; see Forms.h.
  Piece(int64_t bytes, Fill fill, Weight weight, std::string form);
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  ~Piece();

  // Does nothing if it is filled; waits while another thread fills it. Throws
  // what filling throws, and can then be called again.
  void fill();
  bool is_filled() const {
    return filled_;
  }
  void* memory() const {
    return memory_.get();
  }
  int64_t bytes() const {
    return bytes_;
  }

 private:
  friend class Forms;

  std::optional<Weight> weight_{}; // that it is a form of
  std::string form_{};
  // Guarded by the lock of Forms:
  uint64_t digest_ = 0;  // of the weight that fills it
  bool is_kept_ = false; // by an executable that is not only tried
  int64_t reserved_ = 0; // bytes of the process's reserve
  std::shared_ptr<void> memory_;
  int64_t bytes_;
  Fill fill_;
  std::mutex filling_;
  std::atomic<bool> filled_ = false;
};

class Packed {
 public:
  // Returns the piece of the key, new or known. A key holds a constant's index
  // and all that its packed form depends on.
  std::shared_ptr<Piece> get(const std::string& key, int64_t bytes, Fill fill);
  // The same of a form of a weight, which plans share; `digest` tells its
  // elements from others.
  std::shared_ptr<Piece> get(
      const Weight& weight,
      const std::string& form,
      int64_t bytes,
      Fill fill,
      const std::function<uint64_t()>& digest);
  // Fills those that are not filled yet, with the threads of the caller.
  static void fill(std::vector<std::shared_ptr<Piece>> pieces);
  // Of all that executables hold.
  int64_t bytes() const;
  // Forgets what no executable holds.
  void trim() {
    pieces_.trim();
  }

 private:
  Shared<Piece> pieces_;
};

// Compares with the threads of the caller.
bool are_same_bytes(const void* a, const void* b, int64_t bytes);

// A number for keys, the same for equal layouts in all plans.
size_t number_of(const ::zendnn::memory::desc& layout);

} // namespace at::native::zendnn::plan
