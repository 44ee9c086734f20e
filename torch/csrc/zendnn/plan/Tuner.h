// Chooses between implementations by timing them and comparing their results,
// and remembers the choices.
#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

// What a candidate has computed: its elements, or a sample of many, and how
// many NaN its memory holds.
struct Outcome {
  std::vector<float> values;
  int64_t nans = 0;
  double scale = 0; // of its sums, whose rounding errors are of it at least
};

struct Candidate {
  std::string name;
  std::function<void()> run; // once, on memory of its own or of all candidates
  std::function<void()> before{}; // each run, and not timed; or nothing
  // Runs once on the operands that all candidates have, over a result of NaN;
  // or nothing, for one that is not compared.
  std::function<Outcome()> compute{};
  // How far rounding may move a right result, relative to its largest element;
  // where that is infinity, there is nothing to compare.
  double precision = 0;
  double rounding = 0; // to the result's dtype, relative to each element
  bool ready = false;  // its weights are packed already
};

// Computes the outcome that decides which of several is wrong.
using Judge = std::function<Outcome()>;

struct Choice {
  size_t index;
  std::vector<std::string> wrong; // the candidates that compute wrong results
};

// Returns the fastest candidate that is right; one that is ready may be 3 %
// slower, as another layout of the weights takes memory and time. `key` says
// all that the choice depends on, the number of threads included. A choice is
// made once in a process, by one thread at a time, and once for good with
// ZENDNN_TUNING_CACHE=path, a file that is ignored with a warning when another
// CPU or version wrote it. `seconds_left` is what the caller can still spend on
// timing; without any, the first candidate serves and nothing is remembered.
// Where a candidate fails, as without memory for it, the best so far serves so.
// The file is written by save_choices. `about` is a key that problems of nearly
// this size share: the first of them to be timed chooses for all.
//
// Candidates that are timed are compared, too. Where two differ by more than
// rounding explains, `judge` computes the result, and those that are far from
// it, and farther than others, are wrong: a warning says so, and they are
// remembered like choices. ZENDNN_VERIFY=1 has a single candidate judged.
// Throws Refused where all are wrong.
C10_EXPORT Choice choose(
    const std::string& key,
    const std::vector<Candidate>& candidates,
    double& seconds_left,
    const Judge& judge = {},
    const std::string& about = {});

// Appends this process's new choices to the file, if any; those of other
// processes stay.
C10_EXPORT void save_choices();

// What one plan may spend on timing: ZENDNN_TUNING_BUDGET seconds (2 unless
// set).
double tuning_budget();

// Whether ZENDNN_VERIFY is 1.
bool verifies();

} // namespace at::native::zendnn::plan
