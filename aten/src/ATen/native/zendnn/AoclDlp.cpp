// Finds and loads AOCL-DLP.
#include <ATen/native/zendnn/AoclDlp.h>

#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>

#include <dlfcn.h>

#include <filesystem>
#include <optional>

namespace at::native::zendnn::aocl {
namespace {

constexpr const char* kVariable = "ZENDNN_AMD_DIR";
constexpr const char* kFile = "libaocl-dlp.so";
// Where it lies in an installed AOCL-DLP, and in an installed ZenDNN.
constexpr std::array kFolders{"lib", "lib64", "deps/aocldlp/lib"};
constexpr int kOldestMajor = 5, kOldestMinor = 2;

std::string found_in(const std::filesystem::path& root) {
  std::error_code failed;
  for (const auto* folder : kFolders) {
    const auto file = root / folder / kFile;
    if (std::filesystem::exists(file, failed)) {
      return file.string();
    }
  }
  return "";
}

// Looks functions up, and remembers the first that is missing.
class Symbols {
 public:
  explicit Symbols(void* handle) : handle_(handle) {}

  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (function == nullptr && missing_.empty()) {
      missing_ = name;
    }
  }
  const std::string& missing() const {
    return missing_;
  }

 private:
  void* handle_;
  std::string missing_;
};

// The library in the folder, or else what is wrong.
std::optional<Library> load(const char* folder, std::string& wrong) {
  const auto path = found_in(folder);
  if (path.empty()) {
    wrong = "which holds no " + std::string(kFile) + " in " + kFolders[0];
    for (size_t i = 1; i < kFolders.size(); ++i) {
      wrong += std::string(" or ") + kFolders[i];
    }
    return std::nullopt;
  }
  // It stays loaded, as plans keep its functions.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    wrong = "whose library cannot be loaded (" + printable(dlerror()) + ")";
    return std::nullopt;
  }
  Symbols symbols(handle);
  void (*version)(int*, int*, int*) = nullptr;
  Library library{.version = "", .path = path, .float32 = {}, .bfloat16 = {}};
  symbols.find(version, "dlp_version_query");
  auto& narrow = library.bfloat16;
  auto& wide = library.float32;
  symbols.find(wide.packed_size, "aocl_get_reorder_buf_size_f32f32f32of32");
  symbols.find(wide.pack, "aocl_reorder_f32f32f32of32");
  symbols.find(wide.to_float32, "aocl_gemm_f32f32f32of32");
  symbols.find(narrow.packed_size, "aocl_get_reorder_buf_size_bf16bf16f32of32");
  symbols.find(narrow.pack, "aocl_reorder_bf16bf16f32of32");
  symbols.find(narrow.to_float32, "aocl_gemm_bf16bf16f32of32");
  symbols.find(narrow.to_bfloat16, "aocl_gemm_bf16bf16f32obf16");
  if (!symbols.missing().empty()) {
    wrong = "whose library lacks " + symbols.missing();
    return std::nullopt;
  }
  int major = 0, minor = 0, patch = 0;
  version(&major, &minor, &patch);
  library.version = std::to_string(major) + '.' + std::to_string(minor) + '.' +
                    std::to_string(patch);
  if (major < kOldestMajor || (major == kOldestMajor && minor < kOldestMinor)) {
    wrong = "whose library is " + library.version + ", older than 5.2";
    return std::nullopt;
  }
  return library;
}

} // namespace

const Library* library() {
  static const std::optional<Library> loaded = []() -> std::optional<Library> {
    const char* const folder = read(variables::kAmdDir);
    // It asks the real CPU which instructions there are.
    if (folder == nullptr || *folder == '\0' ||
        !this_cpu().emulated_on.empty()) {
      return std::nullopt;
    }
    std::string wrong;
    auto library = load(folder, wrong);
    if (!library) {
      warn_of(kVariable, wrong + ": AMD's matrix products are not used");
    }
    return library;
  }();
  return loaded ? &*loaded : nullptr;
}

} // namespace at::native::zendnn::aocl
