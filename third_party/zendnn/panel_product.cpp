#include "third_party/zendnn/panel_product.h"
#include "third_party/zendnn/emulation.h"
#include "third_party/zendnn/panel_cut.h"
#include "third_party/zendnn/panel_dot.h"
#include "third_party/zendnn/panel_pack.h"

#include "common/primitive.hpp"
#include "common/utils.hpp"
#include "common/zendnn_thread.hpp"
#include "cpu/binary_injector_utils.hpp"
#include "cpu/platform.hpp"

#include <algorithm>
#include <set>

namespace zendnn::impl::cpu::x64 {
namespace {

// A block of a panel, its part of the source, and the prefetched block share
// the L2 cache.
constexpr dim_t kMostSteps = 1024;
// For rows that are read in place. Rows whole pages apart, and those of the
// next panel, compete for few sets of a cache.
constexpr dim_t kMostRowSteps = 48;
// Rows multiplied by a packed panel of plain weights before it is repacked.
constexpr dim_t kMostRows = 1024;
constexpr dim_t kFewRows = 128;
// Floats of a transposed source that a thread keeps, unless that is too little
// for kFewRows; then all threads together keep this many.
constexpr dim_t kMostTransposed = 1 << 20;
constexpr dim_t kMostTransposedByAll = 1 << 24;
// Maximum bytes of a plain matrix that is read in place with any strides: more
// would compete for the sets of the cache.
constexpr dim_t kMostInPlace = 1 << 18;
// The cost of packing a panel, in rows of the product.
constexpr dim_t kPackingCost = 16;
// Rows from which packing rows of weights into a panel pays off.
constexpr dim_t kFewestPackedRows = 96;
// Maximum row stride in bytes that keeps a group of rows within a 32-bit
// offset.
constexpr dim_t kLongestRow = (dim_t{1} << 31) / (2 * kPanelUnroll);
// Maximum rows for dot products with columns in place.
constexpr dim_t kMostDotRows = 4 * kDotRows;
constexpr int kDotVectors = 4;
static_assert(kDotRows == panel_rows(kDotVectors));

// Part `index` of a range that is split evenly.
range_t part(dim_t number, dim_t parts, dim_t index) {
  range_t range{};
  balance211(number, parts, index, range.begin, range.end);
  return range;
}

dim_t tiles_of(dim_t rows, int vectors) {
  return utils::div_up(rows, panel_rows(vectors));
}

// The size of a core's L2 cache, which some hypervisors do not report.
dim_t cache_bytes() {
  return std::max<dim_t>(platform::get_per_core_cache_size(2), 1 << 19);
}

// The number of threads that share an L3 cache, at one per core; all of them if
// the CPU does not tell. Some hypervisors tell of a cache for each core.
int threads_per_l3(int threads) {
  constexpr unsigned kL3 = 2; // of levels from 0
  auto cores = zendnn_emulated()->cores_per_l3;
  if (cores == 0 && cpu().getDataCacheLevels() > kL3) {
    cores = cpu().getCoresSharingDataCache(kL3);
  }
  return cores <= 1 ? threads : std::min(threads, static_cast<int>(cores));
}

// Each thread needs a minimum of multiply-adds to pay off.
int threads_for(const panel_problem_t& p) {
  constexpr dim_t kFewest = 1 << 17;
  const auto share = p.batch * p.rows * p.columns * p.depth / kFewest;
  return static_cast<int>(
      std::clamp<dim_t>(share, 1, dim_t{zendnn_get_max_threads()}));
}

panel_use_t use_of_weights(const panel_problem_t& p, dim_t steps) {
  switch (p.weights.layout) {
    case panel_layout_t::panels:
      return panel_use_t::in_place;
    case panel_layout_t::rows:
      return p.type != data_type::f32 ? panel_use_t::pack // pairs span two rows
             : steps * p.weights.row_stride <= kMostInPlace
                 ? panel_use_t::in_place
             : p.rows < kFewestPackedRows && p.weights.row_stride < kLongestRow
                 ? panel_use_t::rows
                 : panel_use_t::pack;
    case panel_layout_t::columns:
      // A dot product ends in a sum over lanes; packing costs more with depth.
      return p.rows <= std::min(kMostDotRows, steps / kPanelLanes)
                 ? panel_use_t::dots
                 : panel_use_t::pack;
    default:
      return panel_use_t::pack;
  }
}

dim_t tile_of(const panel_problem_t& p, panel_use_t use) {
  return use == panel_use_t::dots ? dim_t{kDotRows} : panel_rows(p.vectors);
}

// Each chunk has rows for two tiles, or for half a tile when rows are few.
dim_t most_chunks(const panel_problem_t& p, panel_use_t use) {
  const auto tile = tile_of(p, use);
  return std::max<dim_t>(
      1, p.rows / (use == panel_use_t::rows ? tile / 2 : 2 * tile));
}

// The number of chunks of rows: few enough to reuse panels, and enough to
// balance the threads.
dim_t chunks_of(const panel_plan_t& plan) {
  const auto& p = plan.problem;
  const auto tile = tile_of(p, plan.weights_use);
  // Each thread that reads a transposed source packs it.
  const auto few = std::clamp(
      kMostTransposedByAll / (plan.steps * plan.threads), 4 * tile, kFewRows);
  const auto share = std::clamp(
      utils::div_up(p.rows, dim_t{plan.threads}),
      few,
      std::clamp(kMostTransposed / plan.steps, few, kMostRows));
  const dim_t fitting =
      plan.transposes_source ? share
      : plan.weights_use != panel_use_t::pack
          ? cache_bytes() / 2 / (plan.block * dim_t{sizeof(float)})
          : kMostRows;
  const auto most = most_chunks(p, plan.weights_use);
  const auto fewest =
      std::min(most, utils::div_up(p.rows, std::max(fitting, 4 * tile)));
  // The time of the thread with the most items, including its share of the
  // narrower last panels.
  const auto vectors = utils::div_up(p.columns, dim_t{kPanelLanes});
  const auto missing = plan.panels * p.vectors - vectors;
  const auto packing = plan.weights_use == panel_use_t::pack ? kPackingCost : 0;
  const auto time = [&](dim_t chunks) {
    const auto items = p.batch * chunks * plan.panels;
    const auto most_items = utils::div_up(items, dim_t{plan.threads});
    const auto longest =
        most_items * p.vectors - most_items / plan.panels * missing;
    return static_cast<double>(
        longest * (utils::div_up(p.rows, chunks) + packing));
  };
  constexpr double kWorthIt = 0.95;
  auto best = fewest;
  for (auto chunks = fewest + 1;
       chunks <= std::min(most, dim_t{4} * plan.threads);
       ++chunks) {
    if (time(chunks) < kWorthIt * time(best)) {
      best = chunks;
    }
  }
  return best;
}

// The most rows and columns that one L3 cache reads. Its threads have
// consecutive numbers.
dim_t read_per_l3(const panel_plan_t& plan, int sharing) {
  const auto items = plan.chunks * plan.panels;
  dim_t most = 0;
  for (int thread = 0; thread < plan.threads; thread += sharing) {
    const auto last = std::min(thread + sharing, plan.threads) - 1;
    const auto end = part(items, plan.threads, last).end;
    dim_t chunks = 0, panels = 0;
    for (auto item = part(items, plan.threads, thread).begin; item < end;) {
      const auto [chunk, panel, band] = plan.at(item);
      const auto skipped = panel - band.begin;
      const auto number =
          std::min(end - item, (plan.chunks - chunk) * band.size() - skipped);
      chunks += utils::div_up(skipped + number, band.size());
      panels += std::min(number, band.size());
      item += number;
    }
    const auto rows = plan.problem.rows * std::min(chunks, plan.chunks);
    most = std::max(
        most, utils::div_up(rows, plan.chunks) + panels * plan.width());
  }
  return most;
}

// With bands, an L3 cache reads a part of the rows and a part of the columns
// instead of all columns of fewer rows. Products of a batch mostly have caches
// of their own, and each band would transpose the source again.
dim_t bands_of(panel_plan_t plan) {
  const auto sharing = threads_per_l3(plan.threads);
  const dim_t caches = utils::div_up(plan.threads, sharing);
  if (plan.problem.batch > 1 || plan.transposes_source || caches == 1) {
    return 1;
  }
  dim_t best = 1, least = read_per_l3(plan, sharing);
  while (++plan.bands <= std::min(caches, plan.panels)) {
    if (const auto read = read_per_l3(plan, sharing); read < least) {
      best = plan.bands;
      least = read;
    }
  }
  return best;
}

} // namespace

bool panel_takes_types(
    data_type_t src,
    data_type_t weights,
    data_type_t dst,
    data_type_t bias,
    dim_t depth) {
  using namespace data_type;
  if (src == f32) {
    return mayiuse(avx512_core) && weights == f32 && dst == f32 &&
           utils::one_of(bias, undef, f32);
  }
  // With AMX, other implementations multiply bfloat16 faster on tiles.
  return mayiuse(avx512_core_bf16) && !mayiuse(avx512_core_amx) &&
         src == bf16 && weights == bf16 && utils::one_of(dst, f32, bf16) &&
         depth % 2 == 0 && utils::one_of(bias, undef, f32, bf16);
}

bool panel_takes_post_ops(
    const post_ops_t& post_ops,
    const memory_desc_t& dst) {
  using namespace injector;
  const memory_desc_wrapper wrapped(dst);
  bcast_set_t operands{
      broadcasting_strategy_t::scalar, broadcasting_strategy_t::no_broadcast};
  if (dst.ndims != 3) { // the second dimension is the columns
    operands.insert(broadcasting_strategy_t::per_oc);
  }
  const auto has_operand = [](const post_ops_t::entry_t& entry) {
    return entry.is_like_binary();
  };
  return post_ops.check_sum_consistency(dst.data_type, /*is_int8=*/false) &&
         (wrapped.is_dense() ||
          std::none_of(
              post_ops.entry_.begin(), post_ops.entry_.end(), has_operand)) &&
         post_ops_ok(post_ops_ok_args_t(
             avx512_core,
             {sum, eltwise, binary},
             post_ops,
             &wrapped,
             /*sum_at_pos_0_only=*/false,
             /*sum_requires_scale_one=*/false,
             /*sum_requires_zp_zero=*/true,
             /*sum_requires_same_params=*/true,
             operands));
}

bool set_plain_weights(panel_weights_t& weights, const memory_desc_t& md) {
  const memory_desc_wrapper wrapped(md);
  if (wrapped.has_runtime_dims_or_strides() || !wrapped.is_plain()) {
    return false;
  }
  const auto depth = md.dims[md.ndims - 2], columns = md.dims[md.ndims - 1];
  const auto row = stride_of(md, -2), column = stride_of(md, -1);
  const bool transposed = row == 1 && column >= depth;
  weights.layout = transposed ? panel_layout_t::columns : panel_layout_t::rows;
  weights.row_stride = bytes_of(md, row);
  weights.column_stride = bytes_of(md, column);
  return transposed || (column == 1 && row >= columns);
}

void pack_panel(
    const panel_weights_t& weights,
    data_type_t type,
    const char* first,
    dim_t steps,
    dim_t columns,
    dim_t width,
    float* packed) {
  const bool transposed = weights.layout == panel_layout_t::columns;
  const panel_source_t source{
      .first = first,
      .stride = transposed ? weights.column_stride : weights.row_stride,
      .depth = steps,
      .columns = columns};
  const auto pack = transposed               ? pack_columns
                    : type == data_type::f32 ? pack_rows
                                             : pack_pairs;
  pack(source, width, packed);
}

int panel_vectors(dim_t columns) {
  if (columns <= dim_t{2} * kPanelLanes) {
    return 2;
  }
  const auto padded = [columns](int vectors) {
    return utils::rnd_up(columns, dim_t{vectors} * kPanelLanes);
  };
  return padded(4) <= padded(3) ? 4 : 3;
}

panel_plan_t::panel_plan_t(const panel_problem_t& p)
    : problem(p),
      steps(p.depth * size_of(p.type) / dim_t{sizeof(float)}),
      threads(threads_for(p)) {
  weights_use = use_of_weights(p, steps);
  if (weights_use == panel_use_t::dots) {
    // Narrows panels until each thread has one.
    const auto chunks_of_all = p.batch * most_chunks(p, weights_use);
    problem.vectors = kDotVectors;
    while (problem.vectors > 2 &&
           chunks_of_all * utils::div_up(p.columns, width()) < threads) {
      --problem.vectors;
    }
  } else if (weights_use == panel_use_t::rows) { // one tile if all rows fit
    problem.vectors = p.rows <= panel_rows(4)   ? 4
                      : p.rows <= panel_rows(3) ? 3
                                                : 2;
  }
  transposes_source = p.src_transposed && (weights_use == panel_use_t::dots ||
                                           steps * p.src_stride > kMostInPlace);
  panels = utils::div_up(p.columns, width());
  const auto most = weights_use == panel_use_t::dots   ? steps
                    : weights_use == panel_use_t::rows ? kMostRowSteps
                                                       : kMostSteps;
  const auto whole = utils::div_up(steps, most);
  block = utils::rnd_up(utils::div_up(steps, whole), dim_t{kPanelLanes});
  blocks = utils::div_up(steps, block);
  chunks = chunks_of(*this);
  bands = bands_of(*this);
  if (weights_use == panel_use_t::rows) {
    const auto fitting =
        cache_bytes() / 4 / (sums_of_panel() * dim_t{sizeof(float)});
    const auto share = utils::div_up(p.batch * chunks * panels, threads);
    together = std::clamp<dim_t>(fitting, 1, std::min(panels, share));
  }
}

panel_plan_t::item_t panel_plan_t::at(dim_t index) const {
  // The first bands may have one panel more.
  const auto all_chunks = problem.batch * chunks;
  const auto size = panels / bands, larger = panels % bands * (size + 1);
  const auto in_order = index / all_chunks; // a panel of the same band
  const auto number = in_order < larger
                          ? in_order / (size + 1)
                          : panels % bands + (in_order - larger) / size;
  const auto band = part(panels, bands, number);
  const auto in_band = index - band.begin * all_chunks;
  return {in_band / band.size(), band.begin + in_band % band.size(), band};
}

bool panel_plan_t::next_is_contiguous() const {
  return problem.weights.layout == panel_layout_t::panels ||
         (problem.weights.layout == panel_layout_t::columns &&
          weights_use == panel_use_t::pack && blocks == 1 &&
          problem.weights.column_stride == steps * dim_t{sizeof(float)});
}

dim_t panel_plan_t::sums_of_panel() const {
  return utils::div_up(problem.rows, chunks) * width();
}

dim_t panel_plan_t::sums_size() const {
  return blocks == 1 && weights_use != panel_use_t::dots
             ? 0
             : together * sums_of_panel();
}

dim_t panel_plan_t::panel_size() const {
  return weights_use == panel_use_t::pack ? block * width() : 0;
}

dim_t panel_plan_t::transposed_stride() const {
  // One extra line, so that rows do not compete for a set of the cache.
  return utils::rnd_up(steps, dim_t{kPanelLanes}) + kPanelLanes;
}

dim_t panel_plan_t::transposed_size() const {
  return transposes_source
             ? utils::div_up(problem.rows, chunks) * transposed_stride()
             : 0;
}

dim_t panel_plan_t::src_stride() const {
  return transposes_source        ? transposed_stride() * dim_t{sizeof(float)}
         : problem.src_transposed ? dim_t{sizeof(float)}
                                  : problem.src_stride;
}

dim_t panel_plan_t::src_step() const {
  return problem.src_transposed && !transposes_source ? problem.src_stride
                                                      : dim_t{sizeof(float)};
}

dim_t panel_plan_t::weights_step() const {
  return weights_are_padded() ? width() * dim_t{sizeof(float)}
                              : problem.weights.row_stride;
}

void panel_plan_t::book(memory_tracking::registrar_t scratchpad) const {
  if (scratch_size() > 0) {
    scratchpad.book(
        memory_tracking::names::key_brgemm_primitive_buffer,
        static_cast<size_t>(threads * scratch_size()),
        sizeof(float),
        kPanelLine,
        kPanelLine);
  }
}

status_t panel_product_t::init(
    const panel_plan_t& plan,
    const post_ops_t& post_ops,
    const memory_desc_t& dst) {
  plan_ = plan;
  const auto& p = plan_.problem;
  // Chunks have at most two sizes, and the tiles of each at most two heights.
  std::set<int> heights;
  dim_t fewest_tiles = p.rows;
  for (const auto chunk : {dim_t{0}, plan_.chunks - 1}) {
    const auto rows = part(p.rows, plan_.chunks, chunk).size();
    const auto tiles = tiles_of(rows, p.vectors);
    fewest_tiles = std::min(fewest_tiles, tiles);
    for (const auto tile : {dim_t{0}, tiles - 1}) {
      heights.insert(static_cast<int>(part(rows, tiles, tile).size()));
    }
  }
  panel_kernel_conf_t conf{};
  conf.type = p.type;
  conf.dst_type = p.dst_type;
  conf.bias_type = p.bias_type;
  conf.bias_by_row = p.bias_by_row;
  conf.vectors = p.vectors;
  conf.src_stride = plan_.src_stride();
  conf.src_step = plan_.src_step();
  conf.dst_stride = p.dst_stride;
  conf.weights_step = plan_.weights_step();
  conf.padded = plan_.weights_are_padded();
  conf.next_rows = plan_.weights_use == panel_use_t::rows;
  conf.part = static_cast<int>(p.part / kPanelUnroll);
  conf.prefetch = plan_.next_is_contiguous()
                      ? static_cast<int>(utils::div_up(
                            dim_t{kPanelUnroll} * p.vectors, fewest_tiles))
                      : 0;
  // The combinations that run() uses.
  std::set<std::pair<bool, bool>> blocks; // first, last
  for (dim_t block = 0; block < plan_.blocks; ++block) {
    blocks.emplace(plan_.is_first(block), plan_.is_last(block));
  }
  for (const auto panel : std::set<dim_t>{0, plan_.panels - 1}) {
    conf.columns = static_cast<int>(plan_.columns_of(panel));
    for (const auto& [first, last] : blocks) {
      conf.first = first;
      conf.last = last;
      for (const int rows : heights) {
        conf.rows = rows;
        CHECK(panel_kernel_t::get(
            conf,
            post_ops,
            dst,
            kernel(rows, first, last, plan_.is_narrow(panel))));
      }
    }
  }
  return status::success;
}

const char* panel_product_t::weights_at(
    const char* weights,
    dim_t panel,
    dim_t step) const {
  const auto& p = plan_.problem;
  if (p.weights.layout == panel_layout_t::panels) {
    const auto padded = p.padded_depth * size_of(p.type);
    return weights + panel * plan_.width() * padded +
           step * plan_.width() * dim_t{sizeof(float)};
  }
  const auto row = step * dim_t{sizeof(float)} / size_of(p.type);
  return weights + row * p.weights.row_stride +
         panel * plan_.width() * p.weights.column_stride;
}

void panel_product_t::make_panel(
    const char* weights,
    dim_t panel,
    dim_t step,
    dim_t steps,
    float* packed) const {
  const auto& p = plan_.problem;
  const auto first = panel * plan_.width();
  const auto columns = plan_.columns_of(panel);
  if (p.weights.layout == panel_layout_t::image) {
    pack_image(
        p.weights.image,
        {.first = weights,
         .pairs = p.type == data_type::bf16,
         .step = step,
         .steps = steps,
         .point = first,
         .points = columns},
        plan_.width(),
        packed);
  } else {
    pack_panel(
        p.weights,
        p.type,
        weights_at(weights, panel, step),
        steps,
        columns,
        plan_.width(),
        packed);
  }
}

status_t panel_product_t::execute(
    const primitive_desc_t& pd,
    const exec_ctx_t& ctx,
    int source,
    int weights) const {
  const auto from = [&](int argument) {
    const char* base = CTX_IN_MEM(const char*, argument);
    const auto* md = pd.arg_md(argument);
    return base ? base + bytes_of(*md, md->offset0) : base;
  };
  const auto operands =
      binary_injector::prepare_binary_args(pd.attr()->post_ops_, ctx);
  char* dst = CTX_OUT_MEM(char*, ZENDNN_ARG_DST);
  run({.src = from(source),
       .weights = from(weights),
       .bias = from(ZENDNN_ARG_BIAS),
       .dst = dst + bytes_of(*pd.dst_md(), pd.dst_md()->offset0),
       .dst_origin = dst,
       .post_ops = operands.data()},
      ctx.get_scratchpad_grantor());
  return status::success;
}

void panel_product_t::run(
    const panel_operands_t& operands,
    const memory_tracking::grantor_t& scratchpad) const {
  const auto& p = plan_.problem;
  auto* scratch = scratchpad.template get<float>(
      memory_tracking::names::key_brgemm_primitive_buffer);
  // The team has all threads: libgomp ends the threads outside a smaller team,
  // and creates them again for the next larger one.
  const int all = plan_.threads == 1 ? 1 : zendnn_get_max_threads();
  parallel(all, [&](int thread, int team) {
    const int threads = std::min(team, plan_.threads);
    if (thread >= threads) {
      return;
    }
    const auto items =
        part(p.batch * plan_.chunks * plan_.panels, threads, thread);
    memory_t memory{};
    memory.sums = scratch + thread * plan_.scratch_size();
    memory.packed = memory.sums + plan_.sums_size();
    memory.transposed = memory.packed + plan_.panel_size();
    for (dim_t item = items.begin; item < items.end;) {
      const auto [index, panel, band] = plan_.at(item);
      const auto product = index / plan_.chunks;
      const auto rows = part(p.rows, plan_.chunks, index % plan_.chunks);
      const range_t panels{panel, std::min(band.end, panel + items.end - item)};
      const char* src =
          operands.src + product * p.src_batch_stride +
          rows.begin * (p.src_transposed ? dim_t{sizeof(float)} : p.src_stride);
      const chunk_t chunk{
          .src = source(src, rows.size(), memory),
          .weights = operands.weights + product * p.weights_batch_stride,
          .bias = operands.bias == nullptr || !p.bias_by_row
                      ? operands.bias
                      : operands.bias + rows.begin * size_of(p.bias_type),
          .dst = operands.dst + product * p.dst_batch_stride +
                 rows.begin * p.dst_stride,
          .rows = rows.size(),
          .panels = panels};
      for (place_t place{panels.begin, 0}; place.panel < panels.end;) {
        const auto then = next(place, panels);
        multiply(chunk, place, then, operands, memory);
        place = then;
      }
      item += panels.size();
    }
  });
}

// The rows that kernels read: in place, or transposed unless they are the last
// transposed ones.
const char*
panel_product_t::source(const char* src, dim_t rows, memory_t& memory) const {
  if (!plan_.transposes_source) {
    return src;
  }
  if (memory.transposed_source != src) {
    memory.transposed_source = src;
    pack_columns(
        {.first = src,
         .stride = plan_.problem.src_stride,
         .depth = rows,
         .columns = plan_.steps},
        plan_.transposed_stride(),
        memory.transposed);
  }
  return reinterpret_cast<const char*>(memory.transposed);
}

panel_product_t::place_t panel_product_t::next(
    place_t place,
    const range_t& panels) const {
  const auto first =
      place.panel - (place.panel - panels.begin) % plan_.together;
  const auto end = std::min(first + plan_.together, panels.end);
  return place.panel + 1 < end         ? place_t{place.panel + 1, place.block}
         : !plan_.is_last(place.block) ? place_t{first, place.block + 1}
                                       : place_t{end, 0};
}

void panel_product_t::multiply(
    const chunk_t& chunk,
    place_t place,
    place_t then,
    const panel_operands_t& operands,
    const memory_t& memory) const {
  const auto& p = plan_.problem;
  const auto& [panel, block] = place;
  const auto tiles = tiles_of(chunk.rows, p.vectors);
  const auto first_column = panel * plan_.width();
  const auto step = block * plan_.block, steps = plan_.steps_of(block);
  panel_kernel_args_t args{};
  args.src = chunk.src + step * plan_.src_step();
  args.dst = chunk.dst + first_column * size_of(p.dst_type);
  args.bias = chunk.bias == nullptr || p.bias_by_row
                  ? chunk.bias
                  : chunk.bias + first_column * size_of(p.bias_type);
  args.weights = weights_at(chunk.weights, panel, step);
  args.sums = memory.sums + (panel - chunk.panels.begin) % plan_.together *
                                plan_.sums_of_panel();
  // Prefetches the next block of the same chunk.
  const bool ends = then.panel == chunk.panels.end;
  args.next =
      ends ? static_cast<const char*>(args.weights)
           : weights_at(chunk.weights, then.panel, then.block * plan_.block);
  if (!ends && plan_.weights_use != panel_use_t::rows) {
    args.next_share = static_cast<size_t>(
        utils::rnd_up(steps * plan_.weights_step() / tiles, dim_t{kPanelLine}));
  }
  if (plan_.weights_use == panel_use_t::pack) {
    make_panel(chunk.weights, panel, step, steps, memory.packed);
    args.weights = memory.packed;
  }
  if (plan_.weights_use == panel_use_t::dots) {
    dot_panel(
        {.src = chunk.src,
         .src_stride = plan_.src_stride(),
         .rows = chunk.rows,
         .weights = static_cast<const char*>(args.weights),
         .weights_stride = p.weights.column_stride,
         .columns = plan_.columns_of(panel),
         .steps = steps},
        p.type == data_type::bf16,
        plan_.width(),
        memory.sums);
  } else { // dots are already summed, like the blocks before the last one
    args.groups = static_cast<size_t>(steps / kPanelUnroll);
    args.steps = static_cast<size_t>(steps % kPanelUnroll);
  }
  args.post_ops_operands = operands.post_ops;
  args.dst_origin = operands.dst_origin;
  // Some tiles have one more row than others.
  const auto fewest = chunk.rows / tiles, more = chunk.rows % tiles;
  for (const auto& [height, count] :
       {std::pair{fewest + 1, more}, std::pair{fewest, tiles - more}}) {
    if (count > 0) {
      args.tiles = static_cast<size_t>(count);
      (*kernel(
          height,
          plan_.is_first(block),
          plan_.is_last(block),
          plan_.is_narrow(panel)))(&args);
    }
  }
}

} // namespace zendnn::impl::cpu::x64

zendnn_panel_cut
zendnn_cut_of_panels(int64_t rows, int64_t columns, int64_t depth) {
  using namespace zendnn::impl::cpu::x64;
  panel_problem_t problem{};
  problem.rows = rows;
  problem.columns = columns;
  problem.depth = depth;
  problem.type = zendnn::impl::data_type::f32;
  problem.weights.layout = panel_layout_t::panels;
  problem.vectors = panel_vectors(columns);
  const panel_plan_t plan(problem);
  return {plan.threads, plan.chunks, plan.panels, plan.bands};
}
