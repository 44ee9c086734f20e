// Convolution with 3 × 3 filters by Winograd's minimal filtering
// (F(4 × 4, 3 × 3) of Lavin and Gray, Fast Algorithms for Convolutional Neural
// Networks, 2015): tiles of 6 × 6 inputs and the filters are transformed,
// multiplied pointwise and summed over the channels, which takes a matrix
// product for each of the 36 points, and tiles of 4 × 4 outputs are transformed
// back. That is a quarter of the multiplications of a direct convolution.
#include "winograd.h"

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

constexpr int64_t kOutput = 4; // the width of a tile of outputs
constexpr int64_t kInput = 6;  // the width of its inputs
constexpr int64_t kPoints = kInput * kInput;

// A register tile of the products has up to kTileRows tiles × kTileVectors
// vectors of filters. The filters are split into panels of that width.
constexpr int kTileRows = kWidth == 16 ? 14 : 6;
constexpr int kTileVectors = 2;
constexpr int64_t kPanel = kTileVectors * kWidth;

// Sums over the channels are made in parts of parts, since the rounding errors
// of one sum grow with its length, and the transform of outputs magnifies them.
// A long part of a panel also stays in the L1 cache for the next tile.
constexpr int64_t kPart = 16;
constexpr int64_t kLongPart = 128;

// Polynomials are evaluated at 0, ±kNear, ±kFar and ∞. These points have nearly
// the least rounding errors, a third of those of the usual 1 and 2, since they
// spread them evenly over the first and the last outputs of a tile, and exact
// products.
constexpr float kNear = 11.0f / 16, kFar = 23.0f / 16;
constexpr float kNear2 = kNear * kNear, kFar2 = kFar * kFar;

// Bᵀ d, for either dimension of a tile.
inline void transform_input(const Vec (&d)[kInput], Vec (&out)[kInput]) {
  const Vec even = d[4] - d[2] * kFar2, odd = d[3] - d[1] * kFar2;
  const Vec even2 = d[4] - d[2] * kNear2, odd2 = d[3] - d[1] * kNear2;
  out[0] = d[0] * (kNear2 * kFar2) + (d[4] - d[2] * (kNear2 + kFar2));
  out[1] = even + odd * kNear;
  out[2] = even - odd * kNear;
  out[3] = even2 + odd2 * kFar;
  out[4] = even2 - odd2 * kFar;
  out[5] = d[1] * (kNear2 * kFar2) + (d[5] - d[3] * (kNear2 + kFar2));
}

// Aᵀ m.
inline void transform_output(const Vec (&m)[kInput], Vec (&out)[kOutput]) {
  const Vec even = m[1] + m[2], odd = m[1] - m[2];
  const Vec even2 = m[3] + m[4], odd2 = m[3] - m[4];
  out[0] = m[0] + even + even2;
  out[1] = odd * kNear + odd2 * kFar;
  out[2] = even * kNear2 + even2 * kFar2;
  out[3] = odd * (kNear2 * kNear) + (odd2 * (kFar2 * kFar) + m[5]);
}

// G g.
inline void transform_filter(const double* g, int64_t stride, double* out) {
  constexpr double near = kNear, far = kFar;
  constexpr double near2 = near * near, far2 = far * far;
  const double near_scale = 1 / (2 * near2 * (near2 - far2));
  const double far_scale = 1 / (2 * far2 * (far2 - near2));
  const double a = g[0], b = g[stride], c = g[2 * stride];
  out[0] = a / (near2 * far2);
  out[1] = (a + b * near + c * near2) * near_scale;
  out[2] = (a - b * near + c * near2) * near_scale;
  out[3] = (a + b * far + c * far2) * far_scale;
  out[4] = (a - b * far + c * far2) * far_scale;
  out[5] = c;
}

// The product, for one point and a long part of the channels, of transformed
// inputs of some tiles and a panel of filters. The inputs are
// (channels / kWidth, block, kWidth), so that rows of a register tile are
// neighbours, and the filters (channels, kPanel).
struct Product {
  const float* inputs;
  int64_t group_stride; // from kWidth channels to the next
  const float* filters;
  const float* next; // filters to prefetch
  float* out;        // (tiles, kPanel)
  int64_t channels;
  bool adds; // to out
};

template <int rows>
inline void add(Vec (&sum)[rows][kTileVectors], const float* from) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j)
      sum[i][j] += load(from + i * kPanel + j * kWidth);
}

template <int rows>
inline void store_sums(float* to, const Vec (&sum)[rows][kTileVectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j)
      store(to + i * kPanel + j * kWidth, sum[i][j]);
}

template <int rows>
void multiply(const Product& p) {
  alignas(64) float parts[rows * kPanel]; // their sum so far
  const float* filters = p.filters;
  const float* next = p.next;
  const float* inputs = p.inputs;
  int64_t c = 0;
  do {
    Vec sum[rows][kTileVectors] = {};
    const bool is_first = c == 0;
    const int64_t end = min(p.channels, c + kPart);
    for (; c < end; c += kWidth, inputs += p.group_stride) {
      const int64_t count = min(p.channels - c, kWidth);
#pragma GCC unroll 2
      for (int64_t k = 0; k < count; ++k, filters += kPanel, next += kPanel) {
        Vec right[kTileVectors];
#pragma GCC unroll 4
        for (int j = 0; j < kTileVectors; ++j) {
          right[j] = load(filters + j * kWidth);
          __builtin_prefetch(next + j * kWidth, 0, 2);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) {
          const Vec left = splat(inputs[k + i * kWidth]);
#pragma GCC unroll 4
          for (int j = 0; j < kTileVectors; ++j)
            sum[i][j] += left * right[j];
        }
      }
    }
    if (!is_first)
      add<rows>(sum, parts);
    if (c < p.channels) {
      store_sums<rows>(parts, sum);
      continue;
    }
    if (p.adds)
      add<rows>(sum, p.out);
    store_sums<rows>(p.out, sum);
  } while (c < p.channels);
}

template <int rows = kTileRows>
inline void multiply(int64_t count, const Product& p) {
  if constexpr (rows > 1)
    if (count < rows)
      return multiply<rows - 1>(count, p);
  multiply<rows>(p);
}

// How the work is split into blocks of tiles. Threads have their own blocks,
// whose transformed inputs stay in the L2 cache. If tiles are few for the size
// of the filters, threads share a block and have their own panels instead, so
// that filters are read once.
struct Plan {
  Plan(const WinogradArgs& args, int threads);
  int64_t tile_rows, tile_columns; // of an image
  int64_t tiles;
  int64_t panels;
  bool shared;
  int64_t block; // tiles
  int64_t blocks;
  int64_t splits;                       // of a shared block with too few panels
  int64_t input_stride, product_stride; // from one point to the next
  int64_t products, zeros, inputs;      // offsets in the scratch of a thread
  int64_t shared_floats, thread_floats; // of scratch
  int64_t bytes;                        // of all scratch
};

// The parts of the L2 cache for a thread's block, and of the L3 cache for a
// shared one.
constexpr int64_t kOwnBytes = 512 * 1024;
constexpr int64_t kSharedBytes = 8 * 1024 * 1024;

// Tiles of a thread's block. Too few do not outweigh reading the filters.
constexpr int64_t kLeastTiles = 8;
constexpr int64_t kFewTiles = 14;
constexpr int64_t kMostTiles = 28;

// An odd number of cache lines between points keeps them in different sets.
inline int64_t spread(int64_t floats) {
  return (ceil_div(floats, 16) | 1) * 16;
}

Plan::Plan(const WinogradArgs& args, int threads)
    : tile_rows(ceil_div(args.out_height, kOutput)),
      tile_columns(ceil_div(args.out_width, kOutput)),
      tiles(args.batch * tile_rows * tile_columns),
      panels(ceil_div(args.filters, kPanel)) {
  const int64_t padded_channels = round_up(max(args.channels, 1), kWidth);
  const int64_t tile_bytes = kPoints * padded_channels * 4;
  const int64_t own = ceil_div(tiles, threads);
  shared = own < kLeastTiles || kFewTiles * tile_bytes > kOwnBytes * 5 / 4;
  if (shared)
    blocks = ceil_div(tiles, max(kSharedBytes / tile_bytes, kFewTiles));
  else
    blocks =
        threads *
        ceil_div(own, min(max(kOwnBytes / tile_bytes, kFewTiles), kMostTiles));
  block = max(ceil_div(tiles, max(blocks, 1)), 1);
  blocks = ceil_div(tiles, block);
  splits = 1;
  while (panels * splits % threads != 0 && panels * splits < 4 * threads &&
         block >= 8 * (splits + 1))
    ++splits;
  input_stride = spread(block * padded_channels);
  product_stride = spread(block * kPanel);
  const int64_t input_floats = kPoints * input_stride;
  products = 0;
  zeros = products + kPoints * product_stride;
  inputs = zeros + round_up(padded_channels, 16);
  shared_floats = shared ? input_floats : 0;
  thread_floats = inputs + (shared ? 0 : input_floats);
  bytes = (shared_floats + threads * thread_floats) * 4;
}

class Winograd {
 public:
  Winograd(const WinogradArgs& args, const Plan& plan, int64_t thread)
      : args_(args), plan_(plan) {
    auto* base = static_cast<float*>(args.scratch);
    float* own = base + plan.shared_floats + thread * plan.thread_floats;
    inputs_ = plan.shared ? base : own + plan.inputs;
    products_ = own + plan.products;
    zeros_ = own + plan.zeros;
    each_vector(args.channels, [&](int64_t c, auto lanes) {
      store(zeros_ + c, Vec{}, lanes);
    });
  }

  void run(int64_t thread, int64_t threads) {
    if (!plan_.shared) {
      const int64_t end = plan_.blocks * (thread + 1) / threads;
      for (int64_t b = plan_.blocks * thread / threads; b < end; ++b) {
        start(b);
        read(0, count_);
        for (int64_t panel = 0; panel < plan_.panels; ++panel)
          work(panel, 0, count_);
      }
      return;
    }
    for (int64_t b = 0; b < plan_.blocks; ++b) {
      start(b);
      read(count_ * thread / threads, count_ * (thread + 1) / threads);
      wait(threads);
      const int64_t splits = plan_.splits, units = plan_.panels * splits;
      const int64_t end = units * (thread + 1) / threads;
      for (int64_t i = units * thread / threads; i < end; ++i) {
        const int64_t split = i % splits;
        work(
            i / splits, count_ * split / splits, count_ * (split + 1) / splits);
      }
      if (b + 1 < plan_.blocks)
        wait(threads);
    }
  }

 private:
  struct Tile {
    int64_t batch, row, column; // of the first output
  };

  Tile tile(int64_t index) const {
    index += first_;
    const int64_t column = index % plan_.tile_columns;
    index /= plan_.tile_columns;
    return {
        index / plan_.tile_rows,
        index % plan_.tile_rows * kOutput,
        column * kOutput};
  }

  void start(int64_t block) {
    first_ = block * plan_.block;
    count_ = min(plan_.tiles - first_, plan_.block);
  }

  static void wait(int64_t threads) {
    if (threads > 1) {
#pragma omp barrier
    }
  }

  // Transforms the inputs of tiles of the block.
  void read(int64_t begin, int64_t end) {
    const ImageStrides& s = args_.x_strides;
    for (int64_t i = begin; i < end; ++i) {
      const Tile t = tile(i);
      const int64_t row = t.row - args_.pad_top;
      const int64_t column = t.column - args_.pad_left;
      const float* x =
          args_.x + t.batch * s.batch + row * s.row + column * s.pixel;
      float* out = inputs_ + i * kWidth;
      if (row >= 0 && row + kInput <= args_.height && column >= 0 &&
          column + kInput <= args_.width) {
        read_tile(out, [&](int64_t y, int64_t z) {
          return x + y * s.row + z * s.pixel;
        });
        continue;
      }
      const float* pixels[kInput][kInput];
      for (int64_t y = 0; y < kInput; ++y)
        for (int64_t z = 0; z < kInput; ++z) {
          const bool inside = row + y >= 0 && row + y < args_.height &&
                              column + z >= 0 && column + z < args_.width;
          pixels[y][z] = inside ? x + y * s.row + z * s.pixel : zeros_;
        }
      read_tile(out, [&](int64_t y, int64_t z) { return pixels[y][z]; });
    }
  }

  template <class Pixel>
  void read_tile(float* out, Pixel pixel) {
    const int64_t point = plan_.input_stride;
    const int64_t right = kOutput * args_.x_strides.pixel;
    each_vector(args_.channels, [&](int64_t c, auto lanes) {
      Vec half[kInput][kInput];
#pragma GCC unroll 6
      for (int64_t z = 0; z < kInput; ++z) {
        Vec column[kInput];
#pragma GCC unroll 6
        for (int64_t y = 0; y < kInput; ++y) {
          column[y] = load(pixel(y, z) + c, lanes);
          if (z >= kInput - kOutput) // new inputs of the tile to the right
            __builtin_prefetch(pixel(y, z) + c + right);
        }
        Vec transformed[kInput];
        transform_input(column, transformed);
#pragma GCC unroll 6
        for (int64_t y = 0; y < kInput; ++y)
          half[y][z] = transformed[y];
      }
      float* to = out + c * plan_.block;
#pragma GCC unroll 6
      for (int64_t y = 0; y < kInput; ++y) {
        Vec transformed[kInput];
        transform_input(half[y], transformed);
#pragma GCC unroll 6
        for (int64_t z = 0; z < kInput; ++z, to += point)
          store(to, transformed[z]);
      }
    });
  }

  // The outputs of tiles of the block for a panel of filters.
  void work(int64_t panel, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const int64_t parts = ceil_div(count, kTileRows);
    const int64_t size = args_.channels * kPanel;
    const float* filters = args_.weights + panel * kPoints * size;
    for (int64_t point = 0; point < kPoints; ++point) {
      const float* inputs =
          inputs_ + point * plan_.input_stride + begin * kWidth;
      float* products = products_ + point * plan_.product_stride;
      int64_t c = 0;
      do {
        const int64_t channels = min(args_.channels - c, kLongPart);
        for (int64_t part = 0; part < parts; ++part) {
          const int64_t from = count * part / parts;
          const int64_t to = count * (part + 1) / parts;
          multiply(
              to - from,
              {.inputs = inputs + c * plan_.block + from * kWidth,
               .group_stride = plan_.block * kWidth,
               .filters = filters,
               .next = filters + (part == 0 ? size : 0),
               .out = products + from * kPanel,
               .channels = channels,
               .adds = c > 0});
        }
        filters += channels * kPanel;
        c += channels;
      } while (c < args_.channels);
    }
    for (int64_t i = 0; i < count; ++i)
      write_tile(tile(begin + i), products_ + i * kPanel, panel * kPanel);
  }

  void write_tile(const Tile& t, const float* products, int64_t filter) {
    const ImageStrides& s = args_.out_strides;
    const int64_t offset =
        t.batch * s.batch + t.row * s.row + t.column * s.pixel + filter;
    const int64_t rows = min(args_.out_height - t.row, kOutput);
    const int64_t columns = min(args_.out_width - t.column, kOutput);
    const int64_t filters = min(args_.filters - filter, kPanel);
    const Vec low = splat(args_.low), high = splat(args_.high);
    each_vector(filters, [&](int64_t f, auto lanes) {
      Vec half[kOutput][kInput];
      const float* from = products + f;
#pragma GCC unroll 6
      for (int64_t z = 0; z < kInput; ++z, from += plan_.product_stride) {
        Vec column[kInput];
#pragma GCC unroll 6
        for (int64_t y = 0; y < kInput; ++y)
          column[y] = load(from + y * kInput * plan_.product_stride);
        Vec transformed[kOutput];
        transform_output(column, transformed);
#pragma GCC unroll 4
        for (int64_t y = 0; y < kOutput; ++y)
          half[y][z] = transformed[y];
      }
      const Vec bias =
          args_.bias ? load(args_.bias + filter + f, lanes) : Vec{};
#pragma GCC unroll 4
      for (int64_t y = 0; y < kOutput; ++y) {
        if (y >= rows)
          break;
        Vec transformed[kOutput];
        transform_output(half[y], transformed);
        if (!all_finite(
                (transformed[0] + transformed[1]) +
                (transformed[2] + transformed[3])))
          convolve(t, y, filter + f, min(filters - f, kWidth), transformed);
        const int64_t place = offset + f + y * s.row;
#pragma GCC unroll 4
        for (int64_t z = 0; z < kOutput; ++z) {
          if (z >= columns)
            break;
          Vec sum = transformed[z] + bias;
          if (args_.addend)
            sum += load(args_.addend + place + z * s.pixel, lanes);
          // This order of arguments of min and max keeps NaN.
          float* out = args_.out + place + z * s.pixel;
          store(out, min(high, max(low, sum)), lanes);
          __builtin_prefetch(out + kOutput * s.pixel, 1);
        }
      }
    });
  }

  // A row of a tile for up to a vector of filters, by direct convolution: for
  // infinities and NaN, which the transforms would spread as NaN over the tile,
  // and for numbers that overflow in the transforms.
  [[gnu::noinline]] void convolve(
      const Tile& t,
      int64_t tile_row,
      int64_t filter,
      int64_t filters,
      Vec (&out)[kOutput]) const {
    const ImageStrides& s = args_.x_strides;
    const WinogradWeights& w = args_.unpacked;
    for (Vec& sum : out)
      sum = Vec{};
    for (int64_t y = 0; y < 3; ++y) {
      const int64_t row = t.row + tile_row + y - args_.pad_top;
      if (row < 0 || row >= args_.height)
        continue;
      for (int64_t x = 0; x < 3; ++x) {
        const int64_t left = t.column + x - args_.pad_left;
        const int64_t begin = max(-left, 0);
        const int64_t end = min(args_.width - left, kOutput);
        const float* pixels =
            args_.x + t.batch * s.batch + row * s.row + left * s.pixel;
        const float* taps = w.weights + filter * w.filter_stride +
                            y * w.row_stride + x * w.column_stride;
        for (int64_t c = 0; c < args_.channels; ++c) {
          float lanes[kWidth] = {};
          for (int64_t f = 0; f < filters; ++f)
            lanes[f] = taps[f * w.filter_stride + c * w.channel_stride];
          const Vec right = load(lanes);
          for (int64_t z = begin; z < end; ++z)
            out[z] += splat(pixels[z * s.pixel + c]) * right;
        }
      }
    }
  }

  const WinogradArgs& args_;
  const Plan& plan_;
  float* inputs_;                 // (points, channels / kWidth, block, kWidth)
  float* products_;               // (points, block, kPanel)
  float* zeros_;                  // a pixel outside the image
  int64_t first_ = 0, count_ = 0; // tiles of the block
};

} // namespace

int64_t winograd_packed_bytes(const WinogradWeights& w) {
  return round_up(w.filters, kPanel) * w.channels * kPoints * 4;
}

void winograd_pack(const WinogradWeights& w) {
  const int64_t panels = ceil_div(w.filters, kPanel);
  const int64_t size = w.channels * kPanel;
  parallel(panels * w.channels, 1, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / w.channels, channel = i % w.channels;
      float* packed = w.packed + panel * kPoints * size + channel * kPanel;
      for (int64_t f = 0; f < kPanel; ++f) {
        double g[3][3] = {}, half[3 * kInput], transformed[kInput];
        const int64_t filter = panel * kPanel + f;
        if (filter < w.filters)
          for (int y = 0; y < 3; ++y)
            for (int x = 0; x < 3; ++x)
              g[y][x] =
                  w.weights
                      [filter * w.filter_stride + channel * w.channel_stride +
                       y * w.row_stride + x * w.column_stride];
        for (int y = 0; y < 3; ++y)
          transform_filter(g[y], 1, half + y * kInput);
        for (int64_t x = 0; x < kInput; ++x) {
          transform_filter(half + x, kInput, transformed);
          for (int64_t y = 0; y < kInput; ++y)
            packed[(y * kInput + x) * size + f] =
                static_cast<float>(transformed[y]);
        }
      }
    }
  });
}

bool winograd_takes(const WinogradArgs& args) {
  if (args.channels < 16 || args.filters < 16)
    return false;
  // Compares the multiplications of direct convolution with ours, plus a third
  // for the transforms, per channel and filter. Reading the larger filters
  // costs as much as a few hundred.
  const int64_t tiles = args.batch * ceil_div(args.out_height, kOutput) *
                        ceil_div(args.out_width, kOutput);
  const int64_t direct = 9 * args.batch * args.out_height * args.out_width;
  const int64_t ours = kPoints * tiles * 4 / 3 + 480;
  return direct * args.filters >= ours * round_up(args.filters, kPanel);
}

int64_t winograd_scratch_bytes(const WinogradArgs& args) {
  int64_t bytes = 0; // the maximum over all numbers of threads
  for (int i = 1; i <= args.threads; ++i)
    bytes = max(bytes, Plan(args, i).bytes);
  return bytes;
}

void winograd(const WinogradArgs& args) {
  if (args.batch == 0 || args.out_height == 0 || args.out_width == 0 ||
      args.filters == 0)
    return;
  const int64_t work = args.batch * args.out_height * args.out_width *
                       args.channels * args.filters;
  const int threads =
      static_cast<int>(min(args.threads, threads_for(work, 1 << 17)));
  const Plan plan(args, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const int64_t thread = omp_get_thread_num();
    Winograd(args, plan, thread).run(thread, omp_get_num_threads());
  }
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
