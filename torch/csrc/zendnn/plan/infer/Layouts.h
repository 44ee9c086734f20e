// How the elements of tensors lie: dtypes, and functions of sizes and strides.
#pragma once

#include <torch/csrc/zendnn/plan/describe/Description.h>
#include <torch/csrc/zendnn/plan/run/Executable.h>

#include <ATen/native/zendnn/kernels/types.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace at::native::zendnn::plan {

// A dtype that an operator states; throws Refused unless plans make tensors of
// it.
c10::ScalarType dtype_made(std::optional<c10::ScalarType> stated);
// The same, or one that they only convert to.
c10::ScalarType dtype_returned(std::optional<c10::ScalarType> stated);
// These throw Refused for a dtype that is not in the table.
memory::data_type type_of(c10::ScalarType dtype);
kernels::DType kernel_type(c10::ScalarType dtype);
// The number as the dtype holds it; throws Refused where that is infinity.
float rounded(c10::ScalarType dtype, float number);
int64_t item_size(c10::ScalarType dtype);
// Also of int64 and bool.
void write_number(c10::ScalarType dtype, float number, void* to);
// Throws Refused for items that the copying kernel does not support, such as
// complex128.
void check_copied(int64_t item_bytes);
int64_t count(const Dims& sizes);
// Wraps a dimension that counts from the back; throws Refused for one that does
// not exist.
int64_t wrap(int64_t dim, int64_t rank);
// The sizes of two tensors that are broadcast together; throws Refused where
// they cannot be.
Dims broadcast(const Dims& a, const Dims& b);
// The same; throws Refused if the result is larger than the operand that it
// keeps the size of.
Dims broadcast(const Dims& a, const Dims& b, Keeps keeps);
Dims row_major_strides(const Dims& sizes);
Dims channels_last_strides(const Dims& sizes);
// The strides that torch gives the result of operands that are combined element
// by element, each with sizes and strides. Operands broadcast.
Dims combined_strides(const std::vector<std::pair<Dims, Dims>>& operands);
// The channels of a block: as many as a vector holds.
int64_t channel_block();
// The blocked layout for 3 to 5 dimensions. With `channels`, that of a slice of
// images with so many, which consists of whole blocks.
memory::format_tag blocked_tag(size_t rank);
memory::desc blocked_layout(
    const Dims& sizes,
    c10::ScalarType dtype,
    std::optional<int64_t> channels = std::nullopt);
// The distance between the elements of dimensions [first, last) when it is the
// same for all of them; `alone` where there is one.
std::optional<int64_t> even_stride(
    const Dims& sizes,
    const Dims& strides,
    size_t first,
    size_t last,
    int64_t alone = 1);
// The distance between rows (all dimensions but the last) where all are equally
// far apart and the elements of a row are contiguous.
std::optional<int64_t> row_stride(const Dims& sizes, const Dims& strides);
// The same where a primitive may write. Rows of one element must be contiguous:
// ZenDNN takes a column with gaps for a transposed matrix.
std::optional<int64_t> writable_row_stride(
    const Dims& sizes,
    const Dims& strides);
// Whether two elements can share memory.
bool overlaps(const Dims& sizes, const Dims& strides);
// The same strides, but those of dimensions of size one as if row-major:
// primitives read them, too.
Dims meaningful_strides(const Dims& sizes, Dims strides);
// From the first element to the last, both included.
int64_t span(const Dims& sizes, const Dims& strides);
bool is_row_major(const Dims& sizes, const Dims& strides);
// Whether the elements fill their memory, each once, in whatever order.
bool is_dense(const Dims& sizes, const Dims& strides);

} // namespace at::native::zendnn::plan
