// Runs an optimised module that Python saved: run_model MODEL.pt SIZE...
//
// Prints the sizes of the result for an input of ones, and its sum.
#include <torch/script.h>

#include <iostream>
#include <string>
#include <vector>

int main(int count, char** words) {
  if (count < 3) {
    std::cerr << "usage: run_model MODEL.pt SIZE...\n";
    return 2;
  }
  std::vector<int64_t> sizes;
  for (int i = 2; i < count; ++i) {
    sizes.push_back(std::stoll(words[i]));
  }
  try {
    const c10::InferenceMode inference;
    auto module = torch::jit::load(words[1]);
    const auto result = module.forward({torch::ones(sizes)}).toTensor();
    std::cout << result.sizes() << ' ' << result.sum().item<double>() << '\n';
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << '\n';
    return 1;
  }
  return 0;
}
