#include <torch/csrc/zendnn/plan/describe/Description.h>
#include <torch/csrc/zendnn/plan/infer/Layouts.h>

#include <ATen/EmptyTensor.h>
#include <ATen/TensorGeometry.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/zendnn/Dtypes.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace at::native::zendnn::plan {

c10::ScalarType dtype_returned(std::optional<c10::ScalarType> stated) {
  if (!stated) {
    refuse("an operator that states no dtype");
  }
  if (*stated != c10::ScalarType::Long && *stated != c10::ScalarType::Bool &&
      find_kernel_dtype(*stated) == nullptr) {
    refuse("the dtype " + name_of(*stated));
  }
  return *stated;
}

c10::ScalarType dtype_made(std::optional<c10::ScalarType> stated) {
  const auto dtype = dtype_returned(stated);
  if (c10::isFloatingType(dtype)) {
    type_of(dtype);
  }
  return dtype;
}

const Dtype& dtype_of(c10::ScalarType scalar) {
  if (const auto* dtype = find_dtype(scalar)) {
    return *dtype;
  }
  refuse(std::string("tensors of ") + c10::toString(scalar));
}

memory::data_type type_of(c10::ScalarType dtype) {
  return dtype_of(dtype).primitive;
}

kernels::DType kernel_type(c10::ScalarType dtype) {
  return dtype_of(dtype).kernel;
}

void write_number(c10::ScalarType dtype, float number, void* to) {
  const auto write = [&]<class T>(T) {
    const T written(number);
    std::memcpy(to, &written, sizeof(T));
  };
  if (dtype == c10::ScalarType::Long) {
    write(int64_t{});
  } else if (dtype == c10::ScalarType::Bool) {
    write(bool{});
  } else {
    with_type(dtype_of(dtype), write);
  }
}

float rounded(c10::ScalarType scalar, float number) {
  const auto& dtype = dtype_of(scalar);
  const auto nearest = with_type(
      dtype, [&]<class T>(T) { return static_cast<float>(T(number)); });
  if (std::isinf(nearest) != std::isinf(number)) {
    refuse("a number that " + std::string(dtype.name) + " does not hold");
  }
  return nearest;
}

int64_t item_size(c10::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

void check_copied(int64_t item_bytes) {
  if (item_bytes > 8) {
    refuse("a copy of items of " + std::to_string(item_bytes) + " bytes");
  }
}

int64_t count(const Dims& sizes) {
  return c10::multiply_integers(sizes);
}

Dims broadcast(const Dims& a, const Dims& b) {
  auto [narrow, out] = a.size() < b.size() ? std::pair(a, b) : std::pair(b, a);
  narrow.insert(narrow.begin(), out.size() - narrow.size(), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    if (narrow[i] != out[i] && narrow[i] != 1 && out[i] != 1) {
      refuse("tensors whose sizes do not broadcast");
    }
    out[i] = out[i] == 1 ? narrow[i] : out[i];
  }
  return out;
}

Dims broadcast(const Dims& a, const Dims& b, Keeps keeps) {
  auto sizes = broadcast(a, b);
  if (keeps != Keeps::neither && sizes != (keeps == Keeps::first ? a : b)) {
    refuse("a result in place that is larger than its target");
  }
  return sizes;
}

Dims row_major_strides(const Dims& sizes) {
  const auto strides = c10::contiguous_strides(sizes);
  return {strides.begin(), strides.end()};
}

Dims channels_last_strides(const Dims& sizes) {
  Dims strides(sizes.size());
  int64_t next = sizes[1];
  strides[1] = 1;
  for (auto i = static_cast<int64_t>(sizes.size()) - 1; i >= 2; --i) {
    strides[i] = next;
    next *= sizes[i];
  }
  strides[0] = next;
  return strides;
}

Dims combined_strides(const std::vector<std::pair<Dims, Dims>>& operands) {
  // Of operands that are row-major, the result is, too. The iterator, which
  // decides in general, takes microseconds.
  Dims shape;
  bool row_major = true;
  for (const auto& [sizes, strides] : operands) {
    shape = broadcast(shape, sizes);
    row_major = row_major && strides == row_major_strides(sizes);
  }
  if (row_major) {
    return row_major_strides(shape);
  }
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).declare_static_dtype_and_device(
      at::kFloat, at::kMeta);
  config.add_owned_output(Tensor());
  for (const auto& [sizes, strides] : operands) {
    config.add_owned_const_input(
        at::detail::empty_strided_meta(sizes, strides, at::kFloat));
  }
  return config.build().output().strides().vec();
}

Dims meaningful_strides(const Dims& sizes, Dims strides) {
  int64_t next = 1;
  for (auto i = static_cast<int64_t>(sizes.size()) - 1; i >= 0; --i) {
    if (sizes[i] == 1) {
      strides[i] = next;
    } else {
      next = std::max(next, strides[i] * sizes[i]);
    }
  }
  return strides;
}

int64_t span(const Dims& sizes, const Dims& strides) {
  return static_cast<int64_t>(
      at::detail::computeStorageNbytes(sizes, strides, /*itemsize=*/1));
}

int64_t wrap(int64_t dim, int64_t rank) {
  const auto wrapped = dim < 0 ? dim + rank : dim;
  if (wrapped < 0 || wrapped >= rank) {
    refuse(
        "dimension " + std::to_string(dim) + " of a tensor with " +
        std::to_string(rank));
  }
  return wrapped;
}

bool overlaps(const Dims& sizes, const Dims& strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1) {
      dims.emplace_back(strides[i], sizes[i]);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < reach) {
      return true;
    }
    reach = stride * size;
  }
  return false;
}

bool is_dense(const Dims& sizes, const Dims& strides) {
  return !overlaps(sizes, strides) && span(sizes, strides) == count(sizes);
}

bool is_row_major(const Dims& sizes, const Dims& strides) {
  return at::geometry_is_contiguous(sizes, strides);
}

std::optional<int64_t> even_stride(
    const Dims& sizes,
    const Dims& strides,
    size_t first,
    size_t last,
    int64_t alone) {
  std::optional<int64_t> found;
  int64_t next = 0; // of the dimension before
  for (auto i = last; i-- > first;) {
    if (sizes[i] == 1) {
      continue;
    }
    if (found && strides[i] != next) {
      return std::nullopt;
    }
    found = found.value_or(strides[i]);
    next = strides[i] * sizes[i];
  }
  return found.value_or(alone);
}

std::optional<int64_t> row_stride(const Dims& sizes, const Dims& strides) {
  if (sizes.empty() || (sizes.back() != 1 && strides.back() != 1)) {
    return std::nullopt;
  }
  const auto row =
      even_stride(sizes, strides, 0, sizes.size() - 1, sizes.back());
  return row && *row < sizes.back() ? std::nullopt : row; // rows that overlap
}

std::optional<int64_t> writable_row_stride(
    const Dims& sizes,
    const Dims& strides) {
  const auto row = row_stride(sizes, strides);
  return row && sizes.back() == 1 && *row != 1 ? std::nullopt : row;
}

int64_t channel_block() {
  return uses(Isa::avx512) ? 16 : 8;
}

memory::format_tag blocked_tag(size_t rank) {
  using tag = memory::format_tag;
  const bool wide = uses(Isa::avx512);
  return rank == 3   ? (wide ? tag::nCw16c : tag::nCw8c)
         : rank == 4 ? (wide ? tag::nChw16c : tag::nChw8c)
                     : (wide ? tag::nCdhw16c : tag::nCdhw8c);
}

memory::desc blocked_layout(
    const Dims& sizes,
    c10::ScalarType dtype,
    std::optional<int64_t> channels) {
  const auto tag = blocked_tag(sizes.size());
  if (!channels || sizes[0] == 1) { // nothing lies between its blocks
    return {sizes, type_of(dtype), tag};
  }
  auto whole = sizes;
  whole[1] = *channels;
  return memory::desc(whole, type_of(dtype), tag)
      .submemory_desc(sizes, Dims(sizes.size(), 0));
}

} // namespace at::native::zendnn::plan
