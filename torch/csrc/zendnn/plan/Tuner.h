// Chooses between implementations by timing them, and remembers the choices.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

struct Candidate {
  std::string name;
  std::function<void()> run; // once, on memory of its own or of all candidates
  std::function<void()> before{}; // each run, and not timed; or nothing
};

// Returns the index of the fastest candidate. `key` says all that the choice
// depends on, the number of threads included. A choice is made once in a
// process, by one thread at a time, and once for good with
// ZENDNN_TUNING_CACHE=path, a file that is ignored with a warning when another
// CPU or version wrote it. `seconds_left` is what the caller can still spend on
// timing; without any, the first candidate serves and nothing is remembered.
// Where a candidate fails, as without memory for it, the best so far serves so.
// The file is written by save_choices.
size_t choose(
    const std::string& key,
    const std::vector<Candidate>& candidates,
    double& seconds_left);

// Adds this process's new choices to the file, if any, in one step: readers see
// the old file or the new one, and other processes' choices stay.
void save_choices();

// What one plan may spend on timing: ZENDNN_TUNING_BUDGET seconds (2 unless
// set).
double tuning_budget();

} // namespace at::native::zendnn::plan
