#include "third_party/zendnn/panel_kernel.h"

#include "common/type_helpers.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <mutex>

namespace zendnn::impl::cpu::x64 {

namespace {

cpu_isa_t isa_of(data_type_t type) {
  return type == data_type::bf16 ? avx512_core_bf16 : avx512_core;
}

// The kernels in use. Kernels of one configuration differ in their post-ops.
struct kernels_t {
  std::mutex mutex;
  std::multimap<panel_kernel_conf_t, std::weak_ptr<const panel_kernel_t>> all;
};

kernels_t& kernels() {
  // Never destroyed, since primitives may outlive it.
  static auto& instance = *new kernels_t;
  return instance;
}

} // namespace

status_t panel_kernel_t::get(
    const panel_kernel_conf_t& conf,
    const post_ops_t& post_ops,
    const memory_desc_t& dst,
    std::shared_ptr<const panel_kernel_t>& kernel) {
  auto& [mutex, all] = kernels();
  const auto find = [&, &all = all] {
    const auto [begin, end] = all.equal_range(conf);
    for (auto i = begin; i != end; ++i) {
      kernel = i->second.lock();
      if (kernel && kernel->applies(post_ops, dst)) {
        return true;
      }
    }
    return false;
  };
  {
    const std::lock_guard lock(mutex);
    if (find()) {
      return status::success;
    }
  }
  std::unique_ptr<panel_kernel_t> created(
      new panel_kernel_t(conf, post_ops, dst));
  CHECK(created->create_kernel());
  const std::lock_guard lock(mutex);
  if (!find()) { // nor has another thread made it meanwhile
    std::erase_if(
        all, [](const auto& entry) { return entry.second.expired(); });
    kernel = std::move(created);
    all.emplace(conf, kernel);
  }
  return status::success;
}

bool panel_kernel_t::applies(
    const post_ops_t& post_ops,
    const memory_desc_t& dst) const {
  const auto& entries = post_ops_.entry_;
  const bool reads_operands =
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
        return entry.is_like_binary();
      });
  return !conf_.last ||
         (post_ops_ == post_ops && (!reads_operands || result_ == dst));
}

#define OFFSET(field) offsetof(panel_kernel_args_t, field)

panel_kernel_t::panel_kernel_t(
    const panel_kernel_conf_t& conf,
    const post_ops_t& post_ops,
    const memory_desc_t& dst)
    : jit_generator_t(jit_name(), isa_of(conf.type)),
      conf_(conf),
      post_ops_(post_ops),
      result_(dst) {
  if (!conf_.last || post_ops_.len() == 0) {
    return;
  }
  const binary_injector::rhs_arg_static_params_t operands(
      /*rhs_dt_helper_vmm_idx=*/0,
      r14,
      r15,
      r13,
      /*preserve_gpr_helpers=*/true,
      /*preserve_vmm_helper=*/true,
      OFFSET(post_ops_operands),
      OFFSET(dst_origin),
      memory_desc_wrapper(dst),
      static_cast<size_t>(conf_.columns % kPanelLanes),
      tail_,
      /*use_exact_tail_scalar_bcast=*/false);
  injector_ = inject_post_ops(
      this,
      isa_of(conf_.type),
      post_ops_,
      {param1,
       binary_injector::get_all_strategies_supported_by_injector(),
       operands},
      [this] { add_previous(); });
}

dim_t panel_kernel_t::dst_offset(int row, int vector) const {
  const auto size = static_cast<dim_t>(types::data_type_size(conf_.dst_type));
  return row * conf_.dst_stride + vector * kPanelLanes * size;
}

Xbyak::Address panel_kernel_t::sums_at(int row, int vector) const {
  return ptr[sums_ + (row * conf_.vectors + vector) * kPanelLine];
}

// Adds the products of one step for all rows and columns of the tile.
void panel_kernel_t::multiply(int step) {
  for (int j = 0; j < vectors(); ++j) {
    const auto w = weight(j);
    vmovups(
        conf_.padded || !is_tail(j) ? w : w | tail_ | T_z,
        ptr[weights_ + step * conf_.weights_step + j * kPanelLine]);
    if (conf_.next_rows) {
      prefetcht0(ptr[next_ + step * conf_.weights_step + j * kPanelLine]);
    }
  }
  for (int i = 0; i < conf_.rows; ++i) {
    const auto x = left(i);
    vbroadcastss(x, ptr[src_ + i * conf_.src_stride + step * conf_.src_step]);
    for (int j = 0; j < vectors(); ++j) {
      if (conf_.type == data_type::bf16) {
        vdpbf16ps(sum(i, j), x, weight(j));
      } else {
        vfmadd231ps(sum(i, j), x, weight(j));
      }
    }
  }
}

void panel_kernel_t::clear_sums() {
  for (int i = 0; i < conf_.rows; ++i) {
    for (int j = 0; j < vectors(); ++j) {
      vpxord(sum(i, j), sum(i, j), sum(i, j));
    }
  }
}

void panel_kernel_t::add_part() {
  for (int i = 0; i < conf_.rows; ++i) {
    for (int j = 0; j < vectors(); ++j) {
      vaddps(sum(i, j), sum(i, j), part_at(i, j));
    }
  }
}

void panel_kernel_t::store_part() {
  for (int i = 0; i < conf_.rows; ++i) {
    for (int j = 0; j < vectors(); ++j) {
      vmovups(part_at(i, j), sum(i, j));
    }
  }
}

void panel_kernel_t::advance(int steps) {
  add(src_, static_cast<uint32_t>(steps * conf_.src_step));
  add(weights_, static_cast<uint32_t>(steps * conf_.weights_step));
  if (conf_.next_rows) {
    add(next_, static_cast<uint32_t>(steps * conf_.weights_step));
  }
}

// Loads a vector of either type as float32, with 0 beyond the tail.
void panel_kernel_t::load(
    const Xbyak::Zmm& to,
    const Xbyak::Address& from,
    data_type_t type,
    int vector) {
  const auto masked = is_tail(vector) ? to | tail_ | T_z : to;
  if (type == data_type::bf16) {
    vpmovzxwd(masked, from);
    vpslld(to, to, 16);
  } else {
    vmovups(masked, from);
  }
}

void panel_kernel_t::add_bias() {
  const auto size = static_cast<int>(types::data_type_size(conf_.bias_type));
  if (conf_.bias_by_row) {
    const auto bias = weight(0);
    for (int i = 0; i < conf_.rows; ++i) {
      const auto from = ptr[bias_ + i * size];
      if (conf_.bias_type == data_type::bf16) {
        vpbroadcastw(bias, from);
        vpslld(bias, bias, 16);
      } else {
        vbroadcastss(bias, from);
      }
      for (int j = 0; j < vectors(); ++j) {
        vaddps(sum(i, j), sum(i, j), bias);
      }
    }
    return;
  }
  for (int j = 0; j < vectors(); ++j) {
    load(weight(j), ptr[bias_ + j * kPanelLanes * size], conf_.bias_type, j);
    for (int i = 0; i < conf_.rows; ++i) {
      vaddps(sum(i, j), sum(i, j), weight(j));
    }
  }
}

// The sum post-op: adds the previous contents of dst, times a factor.
void panel_kernel_t::add_previous() {
  const auto& post_op = post_ops_.entry_[post_ops_.find(primitive_kind::sum)];
  const float scale = post_op.sum.scale;
  const auto previous = weight(0), factor = left(0);
  if (scale != 1) {
    push(rax);
    mov(eax, float2int(scale));
    vpbroadcastd(factor, eax);
    pop(rax);
  }
  for (int i = 0; i < conf_.rows; ++i) {
    for (int j = 0; j < vectors(); ++j) {
      load(previous, ptr[dst_ + dst_offset(i, j)], conf_.dst_type, j);
      if (scale == 1) {
        vaddps(sum(i, j), sum(i, j), previous);
      } else {
        vfmadd231ps(sum(i, j), previous, factor);
      }
    }
  }
}

void panel_kernel_t::apply_post_ops() {
  binary_injector::rhs_arg_dynamic_params_t places;
  injector_utils::vmm_index_set_t all;
  for (int i = 0; i < conf_.rows; ++i) {
    for (int j = 0; j < vectors(); ++j) {
      const int index = sum(i, j).getIdx();
      all.insert(index);
      places.vmm_idx_to_out_reg.emplace(index, dst_);
      places.vmm_idx_to_out_elem_off_val.emplace(index, dst_offset(i, j));
      if (is_tail(j)) {
        places.vmm_tail_idx_.insert(index);
      }
    }
  }
  injector_->compute_vector_range(all, places);
}

void panel_kernel_t::store() {
  for (int i = 0; i < conf_.rows; ++i) {
    for (int j = 0; j < vectors(); ++j) {
      const auto to = ptr[dst_ + dst_offset(i, j)];
      const auto masked = is_tail(j) ? to | tail_ : to;
      if (conf_.dst_type == data_type::bf16) {
        const Xbyak::Ymm half(sum(i, j).getIdx());
        vcvtneps2bf16(half, sum(i, j));
        vmovdqu16(masked, half);
      } else {
        vmovups(masked, sum(i, j));
      }
    }
  }
}

void panel_kernel_t::make_tile() {
  mov(src_, ptr[param1 + OFFSET(src)]);
  mov(weights_, ptr[param1 + OFFSET(weights)]);
  if (conf_.prefetch > 0 || conf_.next_rows) {
    mov(next_, ptr[param1 + OFFSET(next)]);
  }
  clear_sums();

  Xbyak::Label part, groups, steps, rest, done;
  mov(count_, ptr[param1 + OFFSET(groups)]);
  test(count_, count_);
  jz(rest, T_NEAR);
  if (sums_parts()) {
    Xbyak::Label single;
    cmp(count_, conf_.part);
    jbe(single, T_NEAR);
    store_part(); // zeros
    L(single);
  }
  L(part);
  if (sums_parts()) {
    mov(eax, conf_.part);
    mov(groups_, count_);
    cmp(groups_, rax);
    cmova(groups_, rax);
    sub(count_, groups_);
  }
  const auto left_to_do = sums_parts() ? groups_ : count_;
  align(64);
  L(groups);
  for (int step = 0; step < kPanelUnroll; ++step) {
    for (int line = step; line < conf_.prefetch; line += kPanelUnroll) {
      prefetcht1(ptr[next_ + line * kPanelLine]);
    }
    multiply(step);
  }
  advance(kPanelUnroll);
  if (conf_.prefetch > 0) {
    add(next_, conf_.prefetch * kPanelLine);
  }
  dec(left_to_do);
  jnz(groups, T_NEAR);
  if (sums_parts()) {
    test(count_, count_);
    jz(rest, T_NEAR);
    add_part();
    store_part();
    clear_sums();
    jmp(part, T_NEAR);
  }
  L(rest);
  mov(count_, ptr[param1 + OFFSET(steps)]);
  test(count_, count_);
  jz(done, T_NEAR);
  L(steps);
  multiply(0);
  advance(1);
  dec(count_);
  jnz(steps, T_NEAR);
  L(done);
  if (sums_parts()) {
    Xbyak::Label single;
    cmp(qword[param1 + OFFSET(groups)], conf_.part);
    jbe(single, T_NEAR);
    add_part();
    L(single);
  }

  if (!conf_.first || !conf_.last) {
    mov(sums_, ptr[param1 + OFFSET(sums)]);
  }
  for (int i = 0; i < conf_.rows; ++i) {
    for (int j = 0; j < vectors(); ++j) {
      if (!conf_.first) {
        vaddps(sum(i, j), sum(i, j), sums_at(i, j));
      }
      if (!conf_.last) {
        vmovups(sums_at(i, j), sum(i, j));
      }
    }
  }
  if (conf_.last) {
    mov(dst_, ptr[param1 + OFFSET(dst)]);
    if (conf_.bias_type != data_type::undef) {
      mov(bias_, ptr[param1 + OFFSET(bias)]);
      add_bias();
    }
    if (injector_) {
      apply_post_ops();
    }
    store();
  }
}

void panel_kernel_t::next_tile() {
  const auto move = [this](size_t argument, dim_t bytes) {
    add(qword[param1 + argument], static_cast<uint32_t>(bytes));
  };
  move(OFFSET(src), conf_.rows * conf_.src_stride);
  move(OFFSET(dst), conf_.rows * conf_.dst_stride);
  if (!conf_.first || !conf_.last) {
    move(OFFSET(sums), dim_t{conf_.rows} * conf_.vectors * kPanelLine);
  }
  if (conf_.bias_type != data_type::undef && conf_.bias_by_row) {
    move(
        OFFSET(bias),
        conf_.rows *
            static_cast<dim_t>(types::data_type_size(conf_.bias_type)));
  }
  if (conf_.prefetch > 0) {
    mov(rax, ptr[param1 + OFFSET(next_share)]);
    add(ptr[param1 + OFFSET(next)], rax);
  }
}

void panel_kernel_t::generate() {
  preamble();
  if (const int tail = conf_.columns % kPanelLanes) {
    mov(eax, (1 << tail) - 1);
    kmovw(tail_, eax);
  }
  const int parts = conf_.rows * vectors() * kPanelLine; // bytes
  if (sums_parts()) {
    mov(rax, rsp);
    sub(rsp, parts + kPanelLine);
    and_(rsp, -kPanelLine);
    mov(ptr[rsp + parts], rax);
  }
  Xbyak::Label tiles;
  L(tiles);
  make_tile();
  next_tile();
  dec(qword[param1 + OFFSET(tiles)]);
  jnz(tiles, T_NEAR);
  if (sums_parts()) {
    mov(rsp, ptr[rsp + parts]);
  }
  postamble();
  if (injector_) {
    injector_->prepare_table(/*gen_table=*/true);
  }
}

#undef OFFSET

} // namespace zendnn::impl::cpu::x64
