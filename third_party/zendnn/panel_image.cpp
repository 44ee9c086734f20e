#include "third_party/zendnn/panel_image.h"

#include <algorithm>
#include <array>

// The pragma follows all shared headers, since the linker may choose this
// file's copy of their inline functions.
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,bmi2")

// GCC 12 warns of the undefined registers in its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace zendnn::impl::cpu::x64 {
namespace {

constexpr int kLanes = 16, kMostVectors = 4;
constexpr int kMostPoints = 49;
// Maximum rows of the result in one vector of its points.
constexpr int kMostRows = 4;
constexpr int64_t kNarrowest = 5; // of a result: 1 + 5 + 5 + 5 lanes

// Whether points are evenly spaced in memory across the ends of rows.
bool is_even(const panel_image_t& image) {
  return image.stride_down * image.width ==
         image.stride_across * image.out_width;
}

// A load of evenly spaced lanes: lane i reads at `offset` plus i times the
// stride, in items from the channel's start.
struct read_t {
  int64_t offset;
  __mmask16 lanes;
  __mmask32 items; // the lanes' places among the loaded items, a stride apart
};

// The loads of a panel's vectors at each point of the kernel. All vectors have
// the same number of loads; some loads have no lanes.
class reading_t {
 public:
  using reads_t = std::array<read_t, kMostVectors>;

  reading_t(const panel_image_t& image, const panel_fields_t& fields) {
    std::array<vector_t, kMostVectors> vectors;
    int64_t point = fields.point;
    for (auto& vector : vectors) {
      const int64_t end = fields.point + fields.points;
      times_ = std::max(times_, vector.place(image, point, end));
      point += kLanes;
    }
    auto* reads = reads_.data();
    for (int64_t y = 0; y < image.kernel_height; ++y) {
      const int64_t down = y * image.dilation_down;
      __mmask16 in_rows[kMostVectors];
      for (int j = 0; j < kMostVectors; ++j) {
        in_rows[j] = inside(vectors[j].rows, down, image.height);
      }
      for (int64_t x = 0; x < image.kernel_width; ++x, reads += kMostRows) {
        const int64_t across = x * image.dilation_across;
        for (int j = 0; j < kMostVectors; ++j) {
          const auto in = static_cast<__mmask16>(
              in_rows[j] & inside(vectors[j].columns, across, image.width));
          for (int i = 0; i < times_; ++i) {
            const auto& start = vectors[j].starts[i];
            const auto lanes = static_cast<__mmask16>(start.lanes & in);
            reads[i][j] = {
                start.offset + down * image.width + across,
                lanes,
                _pdep_u32(lanes, 0x55555555)};
          }
        }
      }
    }
  }

  int times() const {
    return times_;
  }
  const reads_t* at(int64_t kernel_point) const {
    return &reads_[kernel_point * kMostRows];
  }

 private:
  // The lanes' places at the kernel's first point.
  struct vector_t {
    alignas(64) std::array<int32_t, kLanes> rows, columns;
    std::array<read_t, kMostRows> starts;

    // Places the points up to `end`; returns the number of loads they need.
    int place(const panel_image_t& image, int64_t first, int64_t end) {
      rows = {};
      columns = {};
      starts = {};
      int reads = 0;
      int64_t row = first / image.out_width, column = first % image.out_width;
      for (int lane = 0; lane < kLanes && first + lane < end; ++lane) {
        rows[lane] = static_cast<int32_t>(row * image.stride_down - image.top);
        columns[lane] =
            static_cast<int32_t>(column * image.stride_across - image.left);
        const int64_t offset = rows[lane] * image.width + columns[lane] -
                               lane * image.stride_across;
        if (reads == 0 || starts[reads - 1].offset != offset) {
          starts[reads++] = {offset, 0, 0};
        }
        starts[reads - 1].lanes |= static_cast<__mmask16>(1u << lane);
        if (++column == image.out_width) {
          column = 0;
          ++row;
        }
      }
      return reads;
    }
  };

  // Lanes whose place, plus `moved`, is in [0, number).
  static __mmask16 inside(
      const std::array<int32_t, kLanes>& places,
      int64_t moved,
      int64_t number) {
    const auto at = _mm512_add_epi32(
        _mm512_load_si512(places.data()),
        _mm512_set1_epi32(static_cast<int>(moved)));
    // As unsigned numbers, negative places are too large.
    return _mm512_cmplt_epu32_mask(
        at, _mm512_set1_epi32(static_cast<int>(number)));
  }

  int times_ = 0;
  std::array<reads_t, kMostPoints * kMostRows> reads_;
};

// A position in the depth: the points of the kernel, channel by channel.
class place_t {
 public:
  place_t(const panel_image_t& image, const panel_fields_t& fields)
      : kernel_(image.kernel_height * image.kernel_width),
        channel_bytes_(image.height * image.width * (fields.pairs ? 2 : 4)) {
    const int64_t depth = fields.pairs ? 2 * fields.step : fields.step;
    channel_ = fields.first + depth / kernel_ * channel_bytes_;
    point_ = depth % kernel_;
  }
  const char* channel() const {
    return channel_;
  }
  int64_t point() const {
    return point_;
  }
  void advance() {
    if (++point_ == kernel_) {
      point_ = 0;
      channel_ += channel_bytes_;
    }
  }

 private:
  int64_t kernel_, channel_bytes_;
  const char* channel_;
  int64_t point_;
};

// Loads the lanes from one channel: floats, or bfloat16 in the lower half of
// each lane. With a stride, the floats of the upper lanes go into `high`.
template <bool pairs, bool strided>
[[gnu::always_inline]] inline void
add(const read_t& read, const char* channel, __m512i& low, __m512i& high) {
  const char* from = channel + read.offset * (pairs ? 2 : 4);
  if constexpr (pairs && strided) {
    low = _mm512_or_si512(low, _mm512_maskz_loadu_epi16(read.items, from));
  } else if constexpr (pairs) {
    low = _mm512_or_si512(
        low, _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(read.lanes, from)));
  } else if constexpr (strided) {
    const auto lower = static_cast<__mmask16>(read.items);
    const auto upper = static_cast<__mmask16>(read.items >> kLanes);
    low = _mm512_or_si512(low, _mm512_maskz_loadu_epi32(lower, from));
    high = _mm512_or_si512(high, _mm512_maskz_loadu_epi32(upper, from + 64));
  } else {
    low = _mm512_or_si512(low, _mm512_maskz_loadu_epi32(read.lanes, from));
  }
}

// The items of all vectors at one place.
template <bool pairs, bool strided, int vectors>
[[gnu::always_inline]] inline void read(
    const reading_t& reading,
    const place_t& place,
    __m512i (&items)[vectors]) {
  const auto* reads = reading.at(place.point());
  __m512i high[vectors];
#pragma GCC unroll 4
  for (int j = 0; j < vectors; ++j) {
    items[j] = high[j] = _mm512_setzero_si512();
    add<pairs, strided>(reads[0][j], place.channel(), items[j], high[j]);
  }
  for (int i = 1; i < reading.times(); ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      add<pairs, strided>(reads[i][j], place.channel(), items[j], high[j]);
    }
  }
  if constexpr (strided && !pairs) {
    const __m512i even = _mm512_setr_epi32(
        0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      items[j] = _mm512_permutex2var_epi32(items[j], even, high[j]);
    }
  }
}

template <bool pairs, bool strided, int vectors>
void pack(
    const panel_image_t& image,
    const panel_fields_t& fields,
    float* panel) {
  const reading_t reading(image, fields);
  place_t place(image, fields);
  for (int64_t step = 0; step < fields.steps; ++step) {
    __m512i items[vectors];
    read<pairs, strided>(reading, place, items);
    place.advance();
    if constexpr (pairs) {
      __m512i upper[vectors];
      read<pairs, strided>(reading, place, upper);
      place.advance();
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) {
        items[j] = _mm512_or_si512(items[j], _mm512_slli_epi32(upper[j], 16));
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j, panel += kLanes) {
      _mm512_storeu_si512(panel, items[j]);
    }
  }
}

template <bool pairs, bool strided>
auto pack_of(int64_t width) {
  return width == 2 * kLanes   ? pack<pairs, strided, 2>
         : width == 3 * kLanes ? pack<pairs, strided, 3>
                               : pack<pairs, strided, 4>;
}

} // namespace

bool packs_image(const panel_image_t& image) {
  return image.kernel_height * image.kernel_width <= kMostPoints &&
         image.stride_across <= 2 &&
         (is_even(image) || image.out_width >= kNarrowest);
}

void pack_image(
    const panel_image_t& image,
    const panel_fields_t& fields,
    int64_t width,
    float* panel) {
  const bool strided = image.stride_across == 2;
  const auto chosen = fields.pairs ? strided ? pack_of<true, true>(width)
                                             : pack_of<true, false>(width)
                      : strided ? pack_of<false, true>(width)
                                   : pack_of<false, false>(width);
  chosen(image, fields, panel);
}

} // namespace zendnn::impl::cpu::x64
