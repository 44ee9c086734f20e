// Constants in other layouts, shared by all executables of a plan.
#pragma once

#include <torch/csrc/zendnn/plan/Shared.h>

#include <ATen/native/zendnn/Primitives.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

// Fills memory from constants. It may run in any thread, and after its maker is
// gone.
using Fill = std::function<void(void*)>;

// Writes the elements of a constant in row-major order.
Fill copy_of(const Tensor& constant);

// Memory that is filled once.
class Piece {
 public:
  Piece(int64_t bytes, Fill fill);

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
  bool has(const std::string& key) const {
    return made_.find(key) != nullptr;
  }
  // Fills those that are not filled yet, with the threads of the caller.
  static void fill(std::vector<std::shared_ptr<Piece>> pieces);
  // A number for keys. Equal layouts have the same one, though their bytes may
  // differ.
  size_t number_of(const ::zendnn::memory::desc& layout);
  // Of all that executables hold.
  int64_t bytes() const;
  // Forgets what no executable holds.
  void trim() {
    made_.trim();
  }

 private:
  Shared<Piece> made_;
  std::mutex numbering_;
  std::vector<::zendnn::memory::desc> layouts_;
};

} // namespace at::native::zendnn::plan
