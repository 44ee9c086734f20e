#include "third_party/zendnn/panel_reorder.h"
#include "third_party/zendnn/panel_matmul.h"

#include "common/utils.hpp"
#include "common/zendnn_thread.hpp"

#include <algorithm>
#include <cstring>

namespace zendnn::impl::cpu::x64 {

status_t panel_reorder_t::pd_t::init(
    const_engine_t* engine,
    const_engine_t* src_engine,
    const_engine_t* dst_engine) {
  CHECK(cpu_reorder_pd_t::init(engine, src_engine, dst_engine));
  const auto type = src_md_.data_type;
  VDISPATCH_REORDER(mayiuse(avx512_core), VERBOSE_UNSUPPORTED_ISA);
  VDISPATCH_REORDER(
      type == dst_md_.data_type &&
          (type == data_type::f32 ||
           (type == data_type::bf16 && src_md_.dims[0] % 2 == 0)),
      VERBOSE_UNSUPPORTED_DT);
  VDISPATCH_REORDER(attr()->has_default_values(), VERBOSE_UNSUPPORTED_ATTR);
  vectors = packed_panel_vectors(dst_md_);
  VDISPATCH_REORDER(
      vectors > 0 && set_plain_weights(weights, src_md_) &&
          !memory_desc_wrapper(src_md_).has_zero_dim(),
      VERBOSE_UNSUPPORTED_TAG);
  return status::success;
}

status_t panel_reorder_t::pd_t::create(
    reorder_pd_t** reorder_pd,
    const_engine_t* engine,
    const primitive_attr_t* attr,
    const_engine_t* src_engine,
    const memory_desc_t* src_md,
    const_engine_t* dst_engine,
    const memory_desc_t* dst_md) {
  auto result = make_unique_pd<pd_t>(
      attr, src_engine->kind(), src_md, dst_engine->kind(), dst_md);
  if (result == nullptr) {
    return status::out_of_memory;
  }
  CHECK(result->init(engine, src_engine, dst_engine));
  CHECK(result->init_scratchpad_md());
  return safe_ptr_assign<reorder_pd_t>(*reorder_pd, result.release());
}

status_t panel_reorder_t::execute(const exec_ctx_t& ctx) const {
  const auto &src_md = *pd()->src_md(), &dst_md = *pd()->dst_md();
  const char* src = CTX_IN_MEM(const char*, ZENDNN_ARG_FROM) +
                    bytes_of(src_md, src_md.offset0);
  char* dst =
      CTX_OUT_MEM(char*, ZENDNN_ARG_TO) + bytes_of(dst_md, dst_md.offset0);
  const auto width = dim_t{pd()->vectors} * kPanelLanes;
  const auto columns = src_md.dims[1];
  const auto depth = bytes_of(src_md, src_md.dims[0]),
             padded = bytes_of(dst_md, dst_md.padded_dims[0]);
  const auto panels = utils::div_up(columns, width);
  const auto pack = [&](dim_t panel) {
    char* to = dst + panel * width * padded;
    pack_panel(
        pd()->weights,
        src_md.data_type,
        src + panel * width * pd()->weights.column_stride,
        depth / dim_t{sizeof(float)},
        std::min(width, columns - panel * width),
        width,
        reinterpret_cast<float*>(to));
    std::memset(
        to + width * depth, 0, static_cast<size_t>(width * (padded - depth)));
  };
  // Fewer panels than threads are spread over all of them, and so over NUMA
  // nodes: the threads of a product that read a panel lie around its writer.
  parallel(zendnn_get_max_threads(), [&](dim_t thread, dim_t team) {
    const auto end = utils::div_up((thread + 1) * panels, team);
    for (auto p = utils::div_up(thread * panels, team); p < end; ++p) {
      pack(p);
    }
  });
  return status::success;
}

} // namespace zendnn::impl::cpu::x64
