#include <ATen/native/zendnn/Info.h>

#include <ATen/native/zendnn/AoclDlp.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/Logs.h>
#include <ATen/native/zendnn/ZENDNNCommon.h>
#include <oneapi/zendnn/zendnn_debug.h>
#include <third_party/zendnn/blis_gemm.h>
#include <third_party/zendnn/execution_counters.h>
#include <third_party/zendnn/panel_cut.h>

#include <atomic>
#include <sstream>

namespace at::native::zendnn {
namespace {

std::atomic<int>& verbose_level() {
  static std::atomic<int> level = verbose_at(log_levels().lines);
  return level;
}

} // namespace

std::string version() {
  const auto* v = zendnn_version();
  std::ostringstream out;
  out << v->major << '.' << v->minor << '.' << v->patch;
  return out.str();
}

std::string build_info() {
  std::ostringstream out;
  out << "ZenDNN: " << version() << " (oneDNN " << version()
      << " passed through zendnnify)\n"
      << "PyTorch: integration of " << ZENDNN_PYTORCH_BASELINE
      << ", compiled against " << ZENDNN_TORCH_VERSION << '\n'
      << "BLIS: " << zendnn_blis_version() << '\n'
      << "Compiler: " << ZENDNN_COMPILER << '\n';
  if (const auto* const amd = aocl::library()) {
    out << "AOCL-DLP: " << amd->version << " (" << amd->path << ")\n";
  }
  return out.str();
}

std::string blas_kernels() {
  return zendnn_blis_kernels();
}

std::array<int64_t, 4>
cut_of_panels(int64_t rows, int64_t columns, int64_t depth) {
  const auto cut = zendnn_cut_of_panels(rows, columns, depth);
  return {cut.threads, cut.chunks, cut.panels, cut.bands};
}

std::map<std::string, uint64_t> counters() {
  std::map<std::string, uint64_t> out;
  for (int kind = 0; kind < zendnn_execution_kinds; ++kind) {
    if (const auto count = zendnn_executions(kind)) {
      const auto* name =
          zendnn_prim_kind2str(static_cast<zendnn_primitive_kind_t>(kind));
      out.emplace(kind == zendnn_undefined_primitive ? "other" : name, count);
    }
  }
  return out;
}

void reset_counters() {
  zendnn_reset_executions();
}

bool set_verbose(int level) {
  const bool known = zendnn_set_verbose(level) == zendnn_success;
  if (known) {
    verbose_level() = level;
    set_listening(kVerboseLines, level > 0);
  }
  return known;
}

int verbose() {
  return verbose_level();
}

} // namespace at::native::zendnn
