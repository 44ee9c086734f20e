#include <torch/csrc/zendnn/plan/tune/Comparison.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace at::native::zendnn::plan {
namespace {

// The largest difference of two results, in multiples of what rounding
// explains; infinity where one is no number.
double distance(
    const Outcome& a,
    const Outcome& b,
    double precision,
    double rounding) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.nans != b.nans || a.values.size() != b.values.size()) {
    return kInfinity;
  }
  // The largest of what a function makes of each index.
  const auto largest_of = [&](double least, const auto& function) {
    constexpr int64_t kGrain = 1 << 15;
    const auto larger = [](double x, double y) { return std::max(x, y); };
    return at::parallel_reduce(
        0,
        std::ssize(a.values),
        kGrain,
        least,
        [&](int64_t begin, int64_t end, double most) {
          for (auto i = begin; i < end; ++i) {
            most = std::max(most, function(i));
          }
          return most;
        },
        larger);
  };
  const auto largest = largest_of(b.scale, [&](int64_t i) {
    const auto value = b.values[i];
    return std::isfinite(value) ? std::abs(static_cast<double>(value)) : 0;
  });
  return largest_of(0, [&](int64_t i) {
    const double x = a.values[i], y = b.values[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) {
      return 0.;
    }
    const auto allowed = precision * largest + rounding * std::abs(y);
    const auto far = std::abs(x - y) / allowed;
    return std::isnan(far) ? kInfinity : far;
  });
}

} // namespace

void Comparison::add(size_t index, const Candidate& candidate) {
  if (!candidate.compute) {
    candidate.run();
    return;
  }
  auto outcome = candidate.compute();
  const auto loss = candidate.precision;
  if (std::isinf(loss)) {
    return;
  }
  for (auto& group : groups_) {
    const auto precision = std::max(loss, group.precision);
    if (distance(outcome, group.outcome, precision, candidate.rounding) <= 1) {
      group.members.push_back(index);
      return;
    }
  }
  groups_.push_back({std::move(outcome), loss, candidate.rounding, {index}});
}

bool Comparison::is_open(bool verify) const {
  return groups_.size() > 1 || (verify && !groups_.empty());
}

std::set<size_t> Comparison::wrong_by(const Outcome& right) const {
  constexpr double kFarther = 4;
  std::vector<double> distances;
  for (const auto& group : groups_) {
    distances.push_back(
        distance(group.outcome, right, group.precision, group.rounding));
  }
  const auto least = groups_.size() > 1
                         ? *std::min_element(distances.begin(), distances.end())
                         : 0;
  std::set<size_t> wrong;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (distances[i] > 1 && distances[i] > kFarther * least) {
      wrong.insert(groups_[i].members.begin(), groups_[i].members.end());
    }
  }
  return wrong;
}

} // namespace at::native::zendnn::plan
