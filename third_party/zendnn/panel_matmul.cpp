#include "third_party/zendnn/panel_matmul.h"
#include "third_party/zendnn/panel_pack.h"

#include "common/memory_tracking.hpp"
#include "common/type_helpers.hpp"
#include "common/utils.hpp"
#include "common/zendnn_thread.hpp"
#include "cpu/binary_injector_utils.hpp"
#include "cpu/platform.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace zendnn::impl::cpu::x64 {
namespace {

// A block of a panel and the part of the source's rows that meets it share the
// second-level cache with the block that is fetched meanwhile.
constexpr dim_t kBlockSteps = 768;
// Below this many rows a panel that is made of plain weights does not pay.
constexpr dim_t kFewestRows = 48;
// Rows that meet a panel made of plain weights before it is made anew.
constexpr dim_t kMostRows = 1024;

struct Range {
  dim_t begin, end;
};

// Part `index` of a number that is cut evenly.
Range part(dim_t number, dim_t parts, dim_t index) {
  Range range{};
  balance211(number, parts, index, range.begin, range.end);
  return range;
}

dim_t tiles_of(dim_t rows, int vectors) {
  return utils::div_up(rows, panel_rows(vectors));
}

// What packed weights look like, by vectors of a panel less two.
constexpr format_tag_t kFloatPanels[]{
    format_tag::BA16a32b,
    format_tag::BA16a48b,
    format_tag::BA16a64b};
constexpr format_tag_t kPairPanels[]{
    format_tag::BA16a32b2a,
    format_tag::BA16a48b2a,
    format_tag::BA16a64b2a};

} // namespace

bool panel_matmul_t::pd_t::takes_types() const {
  using namespace data_type;
  const auto weights = weights_md_.data_type, dst = dst_md_.data_type;
  if (type() == f32) {
    return mayiuse(avx512_core) && weights == f32 && dst == f32 &&
           (!with_bias() || bias_md_.data_type == f32);
  }
  return mayiuse(avx512_core_bf16) && type() == bf16 && weights == bf16 &&
         utils::one_of(dst, f32, bf16) && K() % 2 == 0 &&
         (!with_bias() || utils::one_of(bias_md_.data_type, f32, bf16));
}

bool panel_matmul_t::pd_t::takes_post_ops() const {
  using namespace injector;
  const memory_desc_wrapper dst(dst_md_);
  const auto& post_ops = attr()->post_ops_;
  return post_ops.check_sum_consistency(dst.data_type(), /*is_int8=*/false) &&
         post_ops_ok(post_ops_ok_args_t(
             type() == data_type::bf16 ? avx512_core_bf16 : avx512_core,
             {sum, eltwise, binary},
             post_ops,
             &dst,
             /*sum_at_pos_0_only=*/false,
             /*sum_requires_scale_one=*/false,
             /*sum_requires_zp_zero=*/true,
             /*sum_requires_same_params=*/true,
             {broadcasting_strategy_t::scalar,
              broadcasting_strategy_t::per_oc,
              broadcasting_strategy_t::no_broadcast}));
}

// Chooses one when the caller has none; says whether it is one of those taken.
bool panel_matmul_t::pd_t::set_weights_layout() {
  const auto& tags = type() == data_type::bf16 ? kPairPanels : kFloatPanels;
  if (memory_desc_wrapper(weights_md_).format_any()) {
    if (memory_desc_init_by_tag(weights_md_, tags[1]) != status::success) {
      return false;
    }
  }
  for (int i = 0; i < 3; ++i) {
    if (memory_desc_matches_tag(weights_md_, tags[i])) {
      plan_.layout = Layout::panels;
      plan_.vectors = i + 2;
      return true;
    }
  }
  const memory_desc_wrapper weights(weights_md_);
  if (!weights.is_plain() || M() < kFewestRows) {
    return false;
  }
  const auto& strides = weights.blocking_desc().strides;
  plan_.vectors = N() % 64 == 0 ? 4 : 3;
  plan_.layout =
      strides[0] == 1 && strides[1] >= K() ? Layout::columns : Layout::rows;
  return plan_.layout == Layout::columns ||
         (strides[1] == 1 && strides[0] >= N());
}

void panel_matmul_t::pd_t::make_plan() {
  const auto columns = dim_t{plan_.vectors} * kPanelLanes;
  plan_.panels = utils::div_up(N(), columns);
  plan_.depth = utils::rnd_up(steps(), 16);
  plan_.blocks = utils::div_up(steps(), kBlockSteps + kBlockSteps / 3);
  plan_.block = utils::rnd_up(utils::div_up(steps(), plan_.blocks), 16);
  plan_.blocks = utils::div_up(steps(), plan_.block);
  plan_.threads = zendnn_get_max_threads();

  // Half of the second-level cache for the source, unless panels must be made
  // anew for each chunk; as many chunks as keep all threads busy, if rows do
  // not become few.
  const dim_t fitting = plan_.layout == Layout::panels
                            ? platform::get_per_core_cache_size(2) / 2 /
                                  (plan_.block * dim_t{sizeof(float)})
                            : kMostRows;
  const auto tile = dim_t{panel_rows(plan_.vectors)};
  const auto most = std::max<dim_t>(1, M() / (2 * tile));
  const auto busy = [this](dim_t chunks) {
    const auto items = chunks * plan_.panels;
    return static_cast<double>(items) /
           static_cast<double>(utils::rnd_up(items, dim_t{plan_.threads}));
  };
  const auto fewest =
      std::min(most, utils::div_up(M(), std::max(fitting, 4 * tile)));
  plan_.chunks = fewest;
  for (dim_t chunks = fewest;
       chunks <= most && chunks < 4 * fewest + 4 * plan_.threads;
       ++chunks) {
    if (busy(chunks) > busy(plan_.chunks) + 0.05) {
      plan_.chunks = chunks;
    }
  }
}

dim_t panel_matmul_t::pd_t::sums_size() const {
  return plan_.blocks == 1
             ? 0
             : utils::div_up(M(), plan_.chunks) * plan_.vectors * kPanelLanes;
}

dim_t panel_matmul_t::pd_t::panel_size() const {
  return plan_.layout == Layout::panels
             ? 0
             : plan_.block * plan_.vectors * kPanelLanes;
}

status_t panel_matmul_t::pd_t::init(engine_t* engine) {
  using skip = primitive_attr_t::skip_mask_t;
  const memory_desc_wrapper weights(weights_md_);
  const auto is_rows = [](const memory_desc_t& md) {
    const memory_desc_wrapper wrapped(md);
    return wrapped.is_plain() && wrapped.blocking_desc().strides[1] == 1 &&
           wrapped.blocking_desc().strides[0] >= md.dims[1];
  };
  const auto fits_an_offset = [](const memory_desc_t& md) {
    return memory_desc_wrapper(md).blocking_desc().strides[0] *
               dim_t{sizeof(float)} * panel_rows(2) <
           (dim_t{1} << 31);
  };
  VDISPATCH_MATMUL(is_dense_format_kind(), VERBOSE_UNSUPPORTED_SPARSE_CFG);
  VDISPATCH_MATMUL(ndims() == 2, VERBOSE_BAD_NDIMS, "dst", ndims());
  VDISPATCH_MATMUL(
      !memory_desc_wrapper(src_md_).has_runtime_dims_or_strides() &&
          !weights.has_runtime_dims_or_strides() &&
          !memory_desc_wrapper(dst_md_).has_runtime_dims_or_strides(),
      VERBOSE_RUNTIMEDIM_UNSUPPORTED);
  VDISPATCH_MATMUL(!has_zero_dim_memory(), VERBOSE_EMPTY_TENSOR, "");
  VDISPATCH_MATMUL(takes_types(), VERBOSE_UNSUPPORTED_DT_CFG);
  VDISPATCH_MATMUL(!with_bias() || is_bias_1xN(), VERBOSE_UNSUPPORTED_BIAS_CFG);
  VDISPATCH_MATMUL(
      attr()->has_default_values(
          skip::post_ops | skip::sum_dt | skip::fpmath_mode, dst_md_.data_type),
      VERBOSE_UNSUPPORTED_ATTR);
  VDISPATCH_MATMUL(set_weights_layout(), VERBOSE_UNSUPPORTED_TAG);
  VDISPATCH_MATMUL(set_default_formats(), VERBOSE_UNSUPPORTED_TAG);
  VDISPATCH_MATMUL(
      is_rows(src_md_) && is_rows(dst_md_) && fits_an_offset(src_md_) &&
          fits_an_offset(dst_md_),
      VERBOSE_UNSUPPORTED_TAG);
  VDISPATCH_MATMUL(
      attr_.set_default_formats(dst_md(0)) == status::success &&
          takes_post_ops(),
      VERBOSE_UNSUPPORTED_POSTOP);
  make_plan();

  auto scratchpad = scratchpad_registry().registrar();
  const auto threads = static_cast<size_t>(plan_.threads);
  if (sums_size() > 0) {
    scratchpad.book(
        memory_tracking::names::key_matmul_dst_in_acc_dt,
        threads * sums_size(),
        sizeof(float),
        kPanelLine,
        kPanelLine);
  }
  if (panel_size() > 0) {
    scratchpad.book(
        memory_tracking::names::key_brgemm_primitive_buffer_b,
        threads * panel_size(),
        sizeof(float),
        kPanelLine,
        kPanelLine);
  }
  return status::success;
}

status_t panel_matmul_t::init(engine_t* /*engine*/) {
  const auto& plan = pd()->plan();
  const memory_desc_t& dst = *pd()->dst_md();
  const auto stride = [](const memory_desc_t& md) {
    return memory_desc_wrapper(md).blocking_desc().strides[0] *
           static_cast<dim_t>(types::data_type_size(md.data_type));
  };
  const auto columns = plan.vectors * kPanelLanes;
  const auto last_columns =
      static_cast<int>(pd()->N() - (plan.panels - 1) * columns);

  // The sizes of tiles: of each chunk, two that follow each other.
  std::set<int> sizes;
  dim_t fewest_tiles = pd()->M();
  for (const auto chunk : {dim_t{0}, plan.chunks - 1}) {
    const auto [begin, end] = part(pd()->M(), plan.chunks, chunk);
    const auto tiles = tiles_of(end - begin, plan.vectors);
    fewest_tiles = std::min(fewest_tiles, tiles);
    for (const auto tile : {dim_t{0}, tiles - 1}) {
      const auto rows = part(end - begin, tiles, tile);
      sizes.insert(static_cast<int>(rows.end - rows.begin));
    }
  }
  panel_kernel_conf_t conf{};
  conf.type = pd()->type();
  conf.dst_type = dst.data_type;
  conf.bias_type =
      pd()->with_bias() ? pd()->weights_md(1)->data_type : data_type::undef;
  conf.vectors = plan.vectors;
  conf.src_stride = stride(*pd()->src_md());
  conf.dst_stride = stride(dst);
  conf.prefetch = plan.layout == Layout::panels
                      ? static_cast<int>(utils::div_up(
                            dim_t{kPanelUnroll} * plan.vectors, fewest_tiles))
                      : 0;
  for (const int rows : sizes) {
    for (const bool first : {false, true}) {
      for (const bool last : {false, true}) {
        for (const bool narrow : {false, true}) {
          if ((first && last) != (plan.blocks == 1) ||
              (!first && !last && plan.blocks == 2) ||
              (!narrow && plan.panels == 1)) {
            continue; // there is no such tile
          }
          conf.rows = rows;
          conf.first = first;
          conf.last = last;
          conf.columns = narrow ? last_columns : columns;
          auto& kernel = kernels_[{rows, first, last, narrow}];
          kernel = std::make_unique<panel_kernel_t>(
              conf, pd()->attr()->post_ops_, dst);
          CHECK(kernel->create_kernel());
        }
      }
    }
  }
  return status::success;
}

bool panel_matmul_t::pd_t::next_is_contiguous() const {
  return plan_.layout == Layout::panels ||
         (plan_.layout == Layout::columns && plan_.blocks == 1 &&
          weights_md_.format_desc.blocking.strides[1] == K());
}

// The weights of a panel's block, from `step` of the depth on, where they are.
const char* panel_matmul_t::pd_t::weights_at(
    const char* weights,
    dim_t panel,
    dim_t step) const {
  const auto columns = dim_t{plan_.vectors} * kPanelLanes;
  if (plan_.layout == Layout::panels) {
    return weights + (panel * plan_.depth + step) * columns * 4;
  }
  const auto size = static_cast<dim_t>(types::data_type_size(type()));
  const auto& strides = weights_md_.format_desc.blocking.strides;
  return weights + step * 4 / size * strides[0] * size +
         panel * columns * strides[1] * size;
}

void panel_matmul_t::pd_t::pack(
    const char* weights,
    dim_t panel,
    dim_t steps,
    float* packed) const {
  const auto size = static_cast<dim_t>(types::data_type_size(type()));
  const auto& strides = weights_md_.format_desc.blocking.strides;
  const auto columns = dim_t{plan_.vectors} * kPanelLanes;
  const bool turned = plan_.layout == Layout::columns;
  const panel_source_t source{
      .first = weights,
      .stride = strides[turned ? 1 : 0] * size,
      .depth = steps,
      .columns = std::min(columns, N() - panel * columns)};
  (turned                     ? pack_columns
   : type() == data_type::f32 ? pack_rows
                              : pack_pairs)(source, plan_.vectors, packed);
}

status_t panel_matmul_t::execute(const exec_ctx_t& ctx) const {
  const auto& plan = pd()->plan();
  const auto bytes = [](const memory_desc_t* md, dim_t elements) {
    return elements * static_cast<dim_t>(types::data_type_size(md->data_type));
  };
  const auto origin = [&](auto* base, const memory_desc_t* md) {
    return base + bytes(md, md->offset0);
  };
  const auto *src_md = pd()->src_md(), *weights_md = pd()->weights_md(),
             *bias_md = pd()->weights_md(1), *dst_md = pd()->dst_md();
  const char* src = origin(CTX_IN_MEM(const char*, ZENDNN_ARG_SRC), src_md);
  const char* weights =
      origin(CTX_IN_MEM(const char*, ZENDNN_ARG_WEIGHTS), weights_md);
  const char* bias =
      pd()->with_bias()
          ? origin(CTX_IN_MEM(const char*, ZENDNN_ARG_BIAS), bias_md)
          : nullptr;
  char* dst_base = CTX_OUT_MEM(char*, ZENDNN_ARG_DST);
  char* dst = origin(dst_base, dst_md);
  const auto operands =
      binary_injector::prepare_binary_args(pd()->attr()->post_ops_, ctx);
  const auto scratchpad = ctx.get_scratchpad_grantor();
  auto* all_sums = scratchpad.template get<float>(
      memory_tracking::names::key_matmul_dst_in_acc_dt);
  auto* all_packed = scratchpad.template get<float>(
      memory_tracking::names::key_brgemm_primitive_buffer_b);
  const auto src_row = bytes(src_md, src_md->format_desc.blocking.strides[0]);
  const auto dst_row = bytes(dst_md, dst_md->format_desc.blocking.strides[0]);
  const auto columns = dim_t{plan.vectors} * kPanelLanes;

  parallel(plan.threads, [&](int thread, int threads) {
    const auto items = part(plan.chunks * plan.panels, threads, thread);
    float* sums = all_sums ? all_sums + thread * pd()->sums_size() : nullptr;
    float* packed =
        all_packed ? all_packed + thread * pd()->panel_size() : nullptr;
    for (dim_t item = items.begin; item < items.end; ++item) {
      const auto chunk = part(pd()->M(), plan.chunks, item / plan.panels);
      const auto panel = item % plan.panels;
      const auto tiles = tiles_of(chunk.end - chunk.begin, plan.vectors);
      const bool narrow = panel == plan.panels - 1;
      for (dim_t block = 0; block < plan.blocks; ++block) {
        const auto step = block * plan.block;
        const auto steps = std::min(plan.block, pd()->steps() - step);
        const auto size = steps * columns * dim_t{sizeof(float)};
        const char* from = pd()->weights_at(weights, panel, step);
        // What comes next lies next, unless it is another thread's.
        const bool ends =
            block == plan.blocks - 1 && (narrow || item + 1 == items.end);
        panel_kernel_args_t args{};
        args.weights = from;
        if (packed) {
          pd()->pack(from, panel, steps, packed);
          args.weights = packed;
        }
        args.bias = bias ? bias + bytes(bias_md, panel * columns) : nullptr;
        args.sums = sums;
        args.next = ends ? static_cast<const char*>(args.weights) : from + size;
        args.groups = static_cast<size_t>(steps / kPanelUnroll);
        args.steps = static_cast<size_t>(steps % kPanelUnroll);
        args.post_ops_operands = operands.data();
        args.dst_origin = dst_base;
        for (dim_t tile = 0; tile < tiles; ++tile) {
          const auto rows = part(chunk.end - chunk.begin, tiles, tile);
          const auto row = chunk.begin + rows.begin;
          const auto count = static_cast<int>(rows.end - rows.begin);
          args.src = src + row * src_row + step * dim_t{sizeof(float)};
          args.dst = dst + row * dst_row + bytes(dst_md, panel * columns);
          (*kernels_.at({count, block == 0, block == plan.blocks - 1, narrow}))(
              &args);
          if (sums) {
            args.sums += count * columns;
          }
          if (!ends) {
            args.next = static_cast<const char*>(args.next) +
                        size / tiles / kPanelLine * kPanelLine;
          }
        }
      }
    }
  });
  return status::success;
}

} // namespace zendnn::impl::cpu::x64
