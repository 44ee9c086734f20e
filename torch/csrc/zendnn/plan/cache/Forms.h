// The packed forms of weights, of all plans of the process, and the bound of
// the memory that they take.
#pragma once

#include <torch/csrc/zendnn/plan/cache/Packed.h>

#include <c10/macros/Export.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace at::native::zendnn::plan {

// Plans with the same weight share its forms. ZENDNN_PACKED_MEMORY says how
// many times its own size a weight may take in packed forms, 1 unless set;
// those of whole blocks may take an eighth more. What convolutions take beyond
// this, as for Winograd's filters or for another layout of images, comes from a
// small reserve of the process.
class Forms {
 public:
  static Forms& all();

  // Returns the form: one that a plan has made of elements with this digest,
  // since the weight may have changed meanwhile; else a new one.
  std::shared_ptr<Piece> get(
      const Weight& weight,
      const std::string& form,
      int64_t bytes,
      Fill fill,
      uint64_t digest);

  using Pieces = std::vector<std::shared_ptr<Piece>>;

  // What a build has packed so far, which counts for that build alone.
  struct Claim {
    Pieces pieces{};
    int64_t reserve = 0;
  };
  void claim(Claim& claim, const std::shared_ptr<Piece>& piece) const;

  // What follows counts the forms that keep() has seen, and the claim.
  bool has(const Weight& weight, const std::string& form, const Claim& claim)
      const;
  // The forms of the weight; empty where there are none.
  std::string list(const Weight& weight, const Claim& claim) const;
  // Whether one more form of so many bytes keeps the bound.
  bool has_room(const Weight& weight, int64_t bytes, const Claim& claim) const;

  // Whether the reserve has so many bytes left.
  bool has_room_in_reserve(int64_t bytes) const;
  // Counts what an executable holds from now on. Returns false, and counts
  // nothing, if another thread's executable has taken the room.
  bool keep(const Pieces& pieces);

 private:
  // The caller of these holds the lock.
  // Those of all weights that begin at the address.
  Pieces counted(const void* address, const Claim& claim) const;
  // The part of a new form's bytes that exceeds the weight's share.
  int64_t excess(const Weight& weight, int64_t bytes, const Claim& claim) const;
  bool fits(const Weight& weight, int64_t over, const Claim& claim) const;
  // Forgets weights that have no forms any more.
  void sweep();

  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::vector<std::weak_ptr<Piece>>> pieces_;
  size_t swept_ = 0; // how many weights the last sweep has left
};

// A digest of the tensor's elements, and of the number.
uint64_t digest_of(const Tensor& tensor, uint64_t before);

// The bytes of all packed weights of the process; those that plans share count
// once.
C10_EXPORT int64_t packed_memory();

} // namespace at::native::zendnn::plan
