// Dense CPU operators on ZenDNN. Each file lists its rows with their gains, and
// falls back to torch's kernel for everything else.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <vector>

namespace at::native::zendnn::cpu {

// A gain is our time divided by torch's, from the best size to the worst, in
// float32 and in bfloat16: on 2 threads of an Intel Xeon with AVX-512 and AMX
// (large gelu: 1 thread), where torch's products are at their best. Other forms
// of an operator run the same kernel. Sizes and dtypes without a gain are left
// to torch (Heuristics.h).

// All support float32 and bfloat16.
void list_products(torch::Library& m); // Gemm.cpp
void list_attention(torch::Library& m);
void list_convolutions(torch::Library& m);
void list_pooling(torch::Library& m);
void list_recurrences(torch::Library& m); // Rnn.cpp
void list_embedding_bags(torch::Library& m);
void list_random(torch::Library& m);
void list_normalizations(torch::Library& m);
void list_batch_norms(torch::Library& m);
void list_functions(torch::Library& m); // Activation.cpp

// Composite operators.
void list_grus(torch::Library& m);
void list_rms_norms(torch::Library& m);

// The names of all rows.
C10_EXPORT std::vector<std::string> override_names();

// For benchmarks: the nanoseconds that an operator spends on asking whether
// anybody listens and whether a route is set, as a mean of so many.
C10_EXPORT double nanoseconds_of_asking(int64_t operators);

// Gemm.cpp: a @ b of two or three dimensions, as in mm or bmm, plus `added` if
// that is defined.
Tensor product(const Tensor& added, const Tensor& a, const Tensor& b);
void product_out(
    const Tensor& added,
    const Tensor& a,
    const Tensor& b,
    Tensor& out);

// Convolution.cpp: why not a convolution of tensors of one rank, 3 to 5; null
// where ZenDNN takes the bias, the sizes and the window.
const char* why_not_window(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups);

// Whether torch's default epsilon for bfloat16 is float32's: versions differ.
C10_EXPORT bool has_one_default_eps();

} // namespace at::native::zendnn::cpu
