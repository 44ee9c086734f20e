#include <torch/csrc/zendnn/plan/cache/Forms.h>
#include <torch/csrc/zendnn/plan/infer/Layouts.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Environment.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// What forms may take beyond a weight's own bytes, times the factor: blocks
// that are not full, of which small weights have more.
constexpr int64_t kRoundingShare = 8, kRoundingBytes = int64_t{64} << 10;
// Enough for Winograd's filters of the usual networks for images, in each
// layout.
constexpr int64_t kReserve = int64_t{256} << 20;

std::atomic<int64_t>& packed_now() {
  static std::atomic<int64_t> bytes{0};
  return bytes;
}

std::atomic<int64_t>& reserved_now() {
  static std::atomic<int64_t> bytes{0};
  return bytes;
}

double packed_factor() {
  return read(variables::kPackedMemory);
}

// A digest of memory. A single word that changes always changes it, since each
// step is a bijection of the word, and one of the hash.
uint64_t digest_of(const char* memory, int64_t bytes) {
  constexpr int64_t kLanes = 8, kWord = sizeof(uint64_t);
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15; // 2^64 / golden ratio
  constexpr int kTurn = 29; // or the highest bits would stay where they are
  const auto mixed = [](uint64_t hash, uint64_t word) {
    return std::rotl((hash ^ word) * kOdd, kTurn);
  };
  std::array<uint64_t, kLanes> lanes{1, 2, 3, 4, 5, 6, 7, 8}, words{};
  for (int64_t at = 0; at < bytes; at += kLanes * kWord) {
    const auto left = std::min(bytes - at, kLanes * kWord);
    if (left < kLanes * kWord) {
      words.fill(0);
    }
    std::memcpy(words.data(), memory + at, left);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = mixed(lanes[lane], words[lane]);
    }
  }
  return std::accumulate(lanes.begin(), lanes.end(), uint64_t{0}, mixed);
}

} // namespace

uint64_t digest_of(const Tensor& tensor, uint64_t before) {
  constexpr int64_t kChunk = 1 << 20;
  const auto* const memory = static_cast<const char*>(tensor.const_data_ptr());
  const auto bytes = span(tensor.sizes().vec(), tensor.strides().vec()) *
                     item_size(tensor.scalar_type());
  std::vector<uint64_t> chunks(divup(bytes, kChunk));
  at::parallel_for(0, std::ssize(chunks), 1, [&](int64_t from, int64_t to) {
    for (auto i = from; i < to; ++i) {
      chunks[i] =
          digest_of(memory + i * kChunk, std::min(bytes - i * kChunk, kChunk));
    }
  });
  chunks.push_back(before);
  return digest_of(
      reinterpret_cast<const char*>(chunks.data()),
      std::ssize(chunks) * static_cast<int64_t>(sizeof(uint64_t)));
}

int64_t packed_memory() {
  return packed_now();
}

Weight::Weight(const Tensors& parts, bool images) : of_images(images) {
  std::ostringstream name;
  for (const auto& part : parts) {
    const auto& storage = part.storage();
    name << storage.unsafeGetStorageImpl() << ' ' << part.const_data_ptr()
         << part.sizes() << part.strides() << part.scalar_type() << ';';
    storages.push_back(storage.getWeakStorageImpl());
    bytes += static_cast<int64_t>(part.nbytes());
  }
  text = name.str();
  address = parts.front().const_data_ptr();
}

Piece::Piece(int64_t bytes, Fill fill, Weight weight, std::string form)
    : Piece(bytes, std::move(fill)) {
  weight_ = std::move(weight);
  form_ = std::move(form);
  packed_now() += bytes_;
}

Piece::~Piece() {
  if (weight_) {
    packed_now() -= bytes_;
    reserved_now() -= reserved_;
  }
}

Forms& Forms::all() {
  static auto* const forms = new Forms;
  return *forms;
}

Forms::Pieces Forms::counted(const void* address, const Claim& claim) const {
  Pieces found;
  if (const auto of = pieces_.find(address); of != pieces_.end()) {
    for (const auto& other : of->second) {
      auto piece = other.lock();
      if (piece &&
          (piece->is_kept_ ||
           std::find(claim.pieces.begin(), claim.pieces.end(), piece) !=
               claim.pieces.end())) {
        found.push_back(std::move(piece));
      }
    }
  }
  return found;
}

std::shared_ptr<Piece> Forms::get(
    const Weight& weight,
    const std::string& form,
    int64_t bytes,
    Fill fill,
    uint64_t digest) {
  const std::lock_guard lock(mutex_);
  auto& pieces = pieces_[weight.address];
  for (const auto& other : pieces) {
    auto piece = other.lock();
    if (piece && piece->form_ == form && piece->bytes_ == bytes &&
        piece->digest_ == digest && piece->weight_->text == weight.text) {
      return piece;
    }
  }
  auto result = std::make_shared<Piece>(bytes, std::move(fill), weight, form);
  result->digest_ = digest;
  std::erase_if(pieces, [](const auto& piece) { return piece.expired(); });
  pieces.push_back(result);
  sweep();
  return result;
}

void Forms::sweep() {
  if (pieces_.size() < 2 * swept_ + 64) {
    return;
  }
  for (auto& [address, pieces] : pieces_) {
    std::erase_if(pieces, [](const auto& piece) { return piece.expired(); });
  }
  std::erase_if(pieces_, [](const auto& of) { return of.second.empty(); });
  swept_ = pieces_.size();
}

void Forms::claim(Claim& claim, const std::shared_ptr<Piece>& piece) const {
  const std::lock_guard lock(mutex_);
  const auto& known = claim.pieces;
  if (!piece->is_kept_ &&
      std::find(known.begin(), known.end(), piece) == known.end()) {
    claim.reserve += excess(*piece->weight_, piece->bytes(), claim);
    claim.pieces.push_back(piece);
  }
}

bool Forms::has(
    const Weight& weight,
    const std::string& form,
    const Claim& claim) const {
  const std::lock_guard lock(mutex_);
  const auto pieces = counted(weight.address, claim);
  return std::any_of(pieces.begin(), pieces.end(), [&](const auto& piece) {
    return piece->form_ == form && piece->weight_->text == weight.text;
  });
}

std::string Forms::list(const Weight& weight, const Claim& claim) const {
  std::set<std::string> forms; // in an order of their own
  const std::lock_guard lock(mutex_);
  for (const auto& piece : counted(weight.address, claim)) {
    forms.insert(piece->weight_->text == weight.text ? piece->form_ : " other");
  }
  std::string text;
  for (const auto& form : forms) {
    text += form;
  }
  return text;
}

int64_t Forms::excess(const Weight& weight, int64_t bytes, const Claim& claim)
    const {
  auto own = weight.bytes;
  int64_t held = 0;
  for (const auto& piece : counted(weight.address, claim)) {
    own = std::max(own, piece->weight_->bytes);
    held += piece->bytes();
  }
  const auto share =
      packed_factor() *
      static_cast<double>(own + own / kRoundingShare + kRoundingBytes);
  const auto over = static_cast<double>(held + bytes) - share;
  return static_cast<int64_t>(std::clamp(over, 0., static_cast<double>(bytes)));
}

bool Forms::fits(const Weight& weight, int64_t over, const Claim& claim) const {
  return over == 0 || (weight.of_images && packed_factor() > 0 &&
                       reserved_now() + claim.reserve + over <= kReserve);
}

bool Forms::has_room(const Weight& weight, int64_t bytes, const Claim& claim)
    const {
  const std::lock_guard lock(mutex_);
  return fits(weight, excess(weight, bytes, claim), claim);
}

bool Forms::has_room_in_reserve(int64_t bytes) const {
  return packed_factor() > 0 && reserved_now() + bytes <= kReserve;
}

bool Forms::keep(const Pieces& pieces) {
  const std::lock_guard lock(mutex_);
  Pieces kept;
  for (const auto& piece : pieces) {
    if (!piece->weight_ || piece->is_kept_) {
      continue;
    }
    const auto over = excess(*piece->weight_, piece->bytes(), {});
    if (!fits(*piece->weight_, over, {})) {
      for (const auto& other : kept) {
        reserved_now() -= std::exchange(other->reserved_, 0);
        other->is_kept_ = false;
      }
      return false;
    }
    piece->is_kept_ = true;
    piece->reserved_ = over;
    reserved_now() += over;
    kept.push_back(piece);
  }
  return true;
}

} // namespace at::native::zendnn::plan
