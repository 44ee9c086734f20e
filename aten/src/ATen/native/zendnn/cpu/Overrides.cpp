// The list of ATen operators whose CPU kernel is ours.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <c10/util/Exception.h>
#include <torch/library.h>

namespace at::native::zendnn::cpu {
namespace {

struct Silent final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// Not a TORCH_LIBRARY_IMPL block, because the dispatcher warns of a kernel that
// replaces another, which here is what is meant.
torch::Library override_kernels(
    c10::DispatchKey key,
    void (*list)(torch::Library& m)) {
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  torch::Library m(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  list(m);
  return m;
}

void list_kernels(torch::Library& m) {
  // Our time in that of torch's kernel, from the best size to the worst, with
  // float32 and with bfloat16: 2 threads of an Intel Xeon with AVX-512 and AMX
  // (large gelu: 1 thread), where torch's products are at their best. The other
  // forms of an operator run the same kernel. Sizes and types that gain nothing
  // are not taken (see LeftToTorch.h).
  m.impl("mm", TORCH_FN(mm)); // .96-1.04, .65-1.0
  m.impl("mm.out", TORCH_FN(mm_out));
  m.impl("addmm", TORCH_FN(addmm)); // .44-1.06, .29-1.35
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("addmm_", TORCH_FN(addmm_));
  m.impl("bmm", TORCH_FN(bmm)); // .88-1.0, .4-1.17
  m.impl("bmm.out", TORCH_FN(bmm_out));
  m.impl("baddbmm", TORCH_FN(baddbmm)); // .98-.99, .49-.83
  m.impl("baddbmm.out", TORCH_FN(baddbmm_out));
  m.impl("baddbmm_", TORCH_FN(baddbmm_));
  m.impl(
      "_scaled_dot_product_flash_attention_for_cpu",
      TORCH_FN(flash_attention)); // .46-.92, .51-.98
  m.impl(
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      TORCH_FN(flash_attention_backward));
  m.impl("_convolution", TORCH_FN(convolution)); // .19-1.0, .14-1.0
  m.impl(
      "max_pool2d_with_indices",
      TORCH_FN(max_pool2d_with_indices));          // .05-.57, .05-.56
  m.impl("mkldnn_rnn_layer", TORCH_FN(rnn_layer)); // 1.0-1.0, .97-.99
  m.impl("mkldnn_rnn_layer_backward", TORCH_FN(rnn_layer_backward));
  m.impl("_embedding_bag", TORCH_FN(embedding_bag)); // .08-.99, .07-1.0
  m.impl("_embedding_bag_forward_only", TORCH_FN(embedding_bag_forward_only));
  m.impl("native_layer_norm", TORCH_FN(native_layer_norm)); // .26-.98, .59-.81
  // .48-.9, .62-.69; to train, with its backward: .25-.45, .6-.72
  m.impl("native_batch_norm", TORCH_FN(native_batch_norm));
  m.impl("native_batch_norm_backward", TORCH_FN(native_batch_norm_backward));
  m.impl("_softmax", TORCH_FN(_softmax)); // .05-.99, .09-1.0
  m.impl("_softmax.out", TORCH_FN(_softmax_out));
  m.impl("_log_softmax", TORCH_FN(_log_softmax)); // .06-1.0, .05-1.0
  m.impl("_log_softmax.out", TORCH_FN(_log_softmax_out));
  m.impl("gelu", TORCH_FN(gelu)); // .05-.87, .07-.98; tanh: .3-.38, .24-.38
  m.impl("gelu.out", TORCH_FN(gelu_out));
  m.impl("gelu_", TORCH_FN(gelu_));
  m.impl("silu", TORCH_FN(silu)); // .81-.91, .72-.76
  m.impl("silu.out", TORCH_FN(silu_out));
  m.impl("silu_", TORCH_FN(silu_));
  m.impl("bernoulli_.float", TORCH_FN(bernoulli_)); // .12, .13: dropout
  m.impl("tanh", TORCH_FN(tanh));                   // not taken, .35-.73
  m.impl("tanh.out", TORCH_FN(tanh_out));
  m.impl("tanh_", TORCH_FN(tanh_));
  m.impl("sigmoid", TORCH_FN(sigmoid)); // .69-.86, .71-.76
  m.impl("sigmoid.out", TORCH_FN(sigmoid_out));
  m.impl("sigmoid_", TORCH_FN(sigmoid_));
}

// What torch composes of other operators stays a composite: a kernel for a
// backend would take its decomposition from autograd, and from who traces.
void list_composites(torch::Library& m) {
  m.impl("gru.input", TORCH_FN(gru));     // .78-.99, .23-.82
  m.impl("rms_norm", TORCH_FN(rms_norm)); // .15-.23, .04-.13
}

const torch::Library for_cpu =
    override_kernels(c10::DispatchKey::CPU, list_kernels);
const torch::Library for_composites = override_kernels(
    c10::DispatchKey::CompositeImplicitAutograd,
    list_composites);

} // namespace
} // namespace at::native::zendnn::cpu
