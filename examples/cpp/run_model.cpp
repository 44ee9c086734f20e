// Runs a model on ZenDNN without Python: a module that
// torch.jit.optimize_for_inference made (.pt), or a package that AOTInductor
// compiled from what torch.backends.zendnn.export returned (.pt2). Calls it on
// a tensor of ones, and prints the shape and the sum of the result, and the
// times.
//
//   run_model MODEL SIZE…
//
// For example: run_model resnet.pt2 1 3 224 224
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/script.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

namespace {

constexpr int kWrongUse = 2;
constexpr int kRuns = 10;

// Stores the number in `text` in `size`; returns false if `text` is not a
// number.
bool parse(const std::string& text, int64_t& size) {
  const auto end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, size);
  return error == std::errc() && rest == end;
}

using Model = std::function<at::Tensor(const at::Tensor&)>;

Model load(const std::string& path) {
  if (path.ends_with(".pt2")) {
    const auto package =
        std::make_shared<torch::inductor::AOTIModelPackageLoader>(path);
    return [package](const at::Tensor& x) { return package->run({x}).at(0); };
  }
  return [module = torch::jit::load(path)](const at::Tensor& x) mutable {
    return module.forward({x}).toTensor();
  };
}

double milliseconds(const Model& model, const at::Tensor& x) {
  const auto start = std::chrono::steady_clock::now();
  model(x);
  const std::chrono::duration<double, std::milli> passed =
      std::chrono::steady_clock::now() - start;
  return passed.count();
}

int run(const std::string& path, const std::vector<int64_t>& sizes) {
  const c10::InferenceMode inference;
  const auto model = load(path);
  const auto x = torch::ones(sizes);

  // The first call builds the plans for these sizes; later calls only run them.
  const auto first = milliseconds(model, x);
  auto best = first;
  for (int i = 0; i < kRuns; ++i) {
    best = std::min(best, milliseconds(model, x));
  }
  const auto result = model(x);
  std::cout.precision(9);
  std::cout << "shape " << result.sizes() << "\nsum "
            << result.sum().item<double>() << "\nfirst call " << first
            << " ms\nbest call " << best << " ms\n";
  return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: " << argv[0] << " MODEL SIZE…\n";
    return kWrongUse;
  }
  std::vector<int64_t> sizes(argc - 2);
  for (int i = 2; i < argc; ++i) {
    if (!parse(argv[i], sizes[i - 2])) {
      std::cerr << argv[0] << ": '" << argv[i]
                << "' is not a size: give a number\n";
      return kWrongUse;
    }
  }
  try {
    return run(argv[1], sizes);
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
