// How the elements of tensors lie: their types, and functions of sizes and
// strides.
#pragma once

#include <torch/csrc/zendnn/plan/Executable.h>

#include <ATen/native/zendnn/kernels/types.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace at::native::zendnn::plan {

// These throw Refused for a dtype that the table does not have.
c10::ScalarType dtype_named(const std::string& name);
memory::data_type type_of(c10::ScalarType dtype);
kernels::DType kernel_type(c10::ScalarType dtype);
void write_number(c10::ScalarType dtype, float number, void* to);
// The number that a dtype holds instead; throws Refused where it is infinity.
float rounded(c10::ScalarType dtype, float number);
int64_t item_size(c10::ScalarType dtype);
// Throws Refused for items that the kernel that copies does not take, such as
// complex128.
void check_copied(int64_t item_bytes);
int64_t count(const Dims& sizes);
// Wraps a dimension that counts from the back; throws Refused for one that is
// not there.
int64_t wrap(int64_t dim, int64_t rank);
// The sizes that two tensors have when each is repeated to meet the other's;
// throws Refused where there are none.
Dims broadcast(const Dims& a, const Dims& b);
Dims row_major_strides(const Dims& sizes);
Dims channels_last_strides(const Dims& sizes);
// The strides of a dense result of operands that are combined element by
// element: its dimensions come in the order that they have in the first operand
// that tells, as with torch's TensorIterator. Operands broadcast.
Dims combined_strides(
    const Dims& sizes,
    const std::vector<std::pair<Dims, Dims>>& operands); // sizes, strides
// Channels that a blocked layout holds together: those of a vector.
int64_t channel_block();
// That layout for 3 to 5 dimensions; of a slice of images with so many channels
// if these are given, which then has whole blocks of its own.
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
// The distance between rows (all dimensions but the last) when it is the same
// for all of them and elements of a row lie side by side.
std::optional<int64_t> row_stride(const Dims& sizes, const Dims& strides);
// The same where a primitive may write. Rows of one element must lie side by
// side: a column with gaps has strides that read as a transposed matrix's, and
// ZenDNN's kernels write it as one.
std::optional<int64_t> writable_row_stride(
    const Dims& sizes,
    const Dims& strides);
// Whether two elements can share a place.
bool overlaps(const Dims& sizes, const Dims& strides);
// The same strides but where they say nothing, in dimensions of size one:
// primitives read those, too.
Dims meaningful_strides(const Dims& sizes, Dims strides);
// From the first element to the last, in elements.
int64_t span(const Dims& sizes, const Dims& strides);
bool is_row_major(const Dims& sizes, const Dims& strides);
// Whether there is one place for each element, and none between them, so that
// they can be gone through in memory order.
bool is_dense(const Dims& sizes, const Dims& strides);

} // namespace at::native::zendnn::plan
