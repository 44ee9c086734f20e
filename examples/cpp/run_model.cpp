// Runs a module that torch.jit.optimize_for_inference made for ZenDNN, without
// Python. Loads the .pt file, calls the module on a tensor of ones, and prints
// the shape and the sum of the result, and the times.
//
//   run_model MODULE.pt SIZE…
//
// For example: run_model resnet.pt 1 3 224 224
#include <torch/script.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iostream>
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

double milliseconds(
    torch::jit::Module& module,
    const std::vector<c10::IValue>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  module.forward(inputs);
  const std::chrono::duration<double, std::milli> passed =
      std::chrono::steady_clock::now() - start;
  return passed.count();
}

int run(const std::string& path, const std::vector<int64_t>& sizes) {
  const c10::InferenceMode inference;
  auto module = torch::jit::load(path);
  const std::vector<c10::IValue> inputs{torch::ones(sizes)};

  // The first call builds the plans for these sizes; later calls only run them.
  const auto first = milliseconds(module, inputs);
  auto best = first;
  for (int i = 0; i < kRuns; ++i) {
    best = std::min(best, milliseconds(module, inputs));
  }
  const auto result = module.forward(inputs).toTensor();
  std::cout.precision(9);
  std::cout << "shape " << result.sizes() << "\nsum "
            << result.sum().item<double>() << "\nfirst call " << first
            << " ms\nbest call " << best << " ms\n";
  return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: " << argv[0] << " MODULE.pt SIZE…\n";
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
