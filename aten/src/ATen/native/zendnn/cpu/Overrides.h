// Dense CPU kernels that run on ZenDNN. Each has the signature of the ATen
// operator it overrides, and hands what ZenDNN does not do to torch's kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

namespace at::native::zendnn::cpu {

// Gemm.cpp: float32 and bfloat16.
Tensor mm(const Tensor& self, const Tensor& mat2);
Tensor& mm_out(const Tensor& self, const Tensor& mat2, Tensor& out);
Tensor addmm(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha);
Tensor& addmm_out(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha,
    Tensor& out);
Tensor& addmm_(
    Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha);
Tensor bmm(const Tensor& self, const Tensor& mat2);
Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out);
Tensor baddbmm(
    const Tensor& self,
    const Tensor& batch1,
    const Tensor& batch2,
    const Scalar& beta,
    const Scalar& alpha);
Tensor& baddbmm_out(
    const Tensor& self,
    const Tensor& batch1,
    const Tensor& batch2,
    const Scalar& beta,
    const Scalar& alpha,
    Tensor& out);
Tensor& baddbmm_(
    Tensor& self,
    const Tensor& batch1,
    const Tensor& batch2,
    const Scalar& beta,
    const Scalar& alpha);

// Attention.cpp: float32 and bfloat16; the output and the logarithm of the sum
// of each query's exponentials, and the gradients of query, key and value.
std::tuple<Tensor, Tensor> flash_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double dropout_p,
    bool is_causal,
    const std::optional<Tensor>& attn_mask,
    std::optional<double> scale);
std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& out,
    const Tensor& logsumexp,
    double dropout_p,
    bool is_causal,
    const std::optional<Tensor>& attn_mask,
    std::optional<double> scale);

// Convolution.cpp: 1 to 3 spatial dimensions, transposed or not, float32 and
// bfloat16.
Tensor convolution(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    bool benchmark,
    bool deterministic,
    bool cudnn_enabled,
    bool allow_tf32);

// Pooling.cpp: plain images, float32 and bfloat16; the largest numbers, and
// where in their planes they are.
std::tuple<Tensor, Tensor> max_pool2d_with_indices(
    const Tensor& self,
    IntArrayRef kernel_size,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode);

// Rnn.cpp: one layer of an LSTM, one direction, float32 and bfloat16.
std::tuple<Tensor, Tensor, Tensor, Tensor> rnn_layer(
    const Tensor& input,
    const Tensor& weight0,
    const Tensor& weight1,
    const Tensor& weight2,
    const Tensor& weight3,
    const Tensor& hx,
    const Tensor& cx,
    bool reverse,
    IntArrayRef batch_sizes,
    int64_t mode,
    int64_t hidden_size,
    int64_t num_layers,
    bool has_biases,
    bool bidirectional,
    bool batch_first,
    bool train);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>
rnn_layer_backward(
    const Tensor& input,
    const Tensor& weight1,
    const Tensor& weight2,
    const Tensor& weight3,
    const Tensor& weight4,
    const Tensor& hx,
    const Tensor& cx,
    const Tensor& output,
    const Tensor& hy,
    const Tensor& cy,
    const std::optional<Tensor>& grad_output,
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    bool reverse,
    int64_t mode,
    int64_t hidden_size,
    int64_t num_layers,
    bool has_biases,
    bool train,
    bool bidirectional,
    IntArrayRef batch_sizes,
    bool batch_first,
    const Tensor& workspace);

// EmbeddingBag.cpp: means and maxima, and sums with padding, float32 and
// bfloat16; torch's own sums are as fast.
std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(
    const Tensor& weight,
    const Tensor& indices,
    const Tensor& offsets,
    bool scale_grad_by_freq,
    int64_t mode,
    bool sparse,
    const std::optional<Tensor>& per_sample_weights,
    bool include_last_offset,
    int64_t padding_idx);
std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag_forward_only(
    const Tensor& weight,
    const Tensor& indices,
    const Tensor& offsets,
    bool scale_grad_by_freq,
    int64_t mode,
    bool sparse,
    const std::optional<Tensor>& per_sample_weights,
    bool include_last_offset,
    int64_t padding_idx);

// Gru.cpp: all layers of a GRU for inference, float32 and bfloat16.
std::tuple<Tensor, Tensor> gru(
    const Tensor& input,
    const Tensor& hx,
    TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first);

// Random.cpp: float32 and bfloat16, the numbers and the generator's state that
// torch would have.
Tensor& bernoulli_(Tensor& self, double p, std::optional<Generator> generator);

// Normalization.cpp: float32 and bfloat16, contiguous. In layer norm the
// parameters of a bfloat16 input may be float32; mean and rstd have their type.
std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& input,
    IntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    double eps);
// Whether torch adds float32's epsilon to mean squares of bfloat16, too, where
// none is given: that changed from version to version.
C10_EXPORT bool has_one_default_eps();
Tensor rms_norm(
    const Tensor& input,
    c10::SymIntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    std::optional<double> eps);
Tensor _softmax(const Tensor& self, int64_t dim, bool half_to_float);
Tensor&
_softmax_out(const Tensor& self, int64_t dim, bool half_to_float, Tensor& out);
Tensor _log_softmax(const Tensor& self, int64_t dim, bool half_to_float);
Tensor& _log_softmax_out(
    const Tensor& self,
    int64_t dim,
    bool half_to_float,
    Tensor& out);

// BatchNorm.cpp: float32 and bfloat16, contiguous or channels-last; parameters
// as in layer norm, but float32 in training.
std::tuple<Tensor, Tensor, Tensor> native_batch_norm(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    bool training,
    double momentum,
    double eps);
std::tuple<Tensor, Tensor, Tensor> native_batch_norm_backward(
    const Tensor& grad_out,
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    const std::optional<Tensor>& save_mean,
    const std::optional<Tensor>& save_invstd,
    bool train,
    double eps,
    std::array<bool, 3> output_mask);

// Activation.cpp: float32 and bfloat16, dense memory.
Tensor gelu(const Tensor& self, std::string_view approximate);
Tensor& gelu_out(const Tensor& self, std::string_view approximate, Tensor& out);
Tensor& gelu_(Tensor& self, std::string_view approximate);
Tensor silu(const Tensor& self);
Tensor& silu_out(const Tensor& self, Tensor& out);
Tensor& silu_(Tensor& self);
Tensor tanh(const Tensor& self);
Tensor& tanh_out(const Tensor& self, Tensor& out);
Tensor& tanh_(Tensor& self);
Tensor sigmoid(const Tensor& self);
Tensor& sigmoid_out(const Tensor& self, Tensor& out);
Tensor& sigmoid_(Tensor& self);

} // namespace at::native::zendnn::cpu
