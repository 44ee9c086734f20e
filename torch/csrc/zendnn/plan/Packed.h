// Constants in other layouts, shared by all executables of a plan.
#pragma once

#include <adeep/abstract_types.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

// Writes what memory is for, from constants. It may run after its maker is
// gone, and in any thread.
using Fill = std::function<void(void*)>;

class Packed {
 public:
  // Memory that is yet to be filled, or is.
  struct Piece {
    Piece(int64_t bytes, Fill fill);

    std::shared_ptr<void> memory;
    int64_t bytes;
    Fill fill;
    std::once_flag filled;
  };

  // Returns what was made for the key, now or before. Keys are a constant's
  // index and all that its packed form depends on.
  std::shared_ptr<Piece> get(const std::string& key, int64_t bytes, Fill fill);
  // Fills those that are not filled yet. Throws what filling them throws; they
  // can then be filled again.
  static void fill(std::vector<std::shared_ptr<Piece>> pieces);
  // A number for keys: equal layouts have one, though their bytes differ where
  // nothing is said.
  size_t number_of(const ::zendnn::memory::desc& layout);
  // Of what executables hold now.
  int64_t bytes() const;
  // Forgets what no executable holds.
  void trim();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Piece>> made_;
  std::vector<::zendnn::memory::desc> layouts_;
};

} // namespace at::native::zendnn::plan
