// Chooses between implementations by timing them and comparing their results,
// and remembers the choices.
//
// The process owns the choices, which one lock guards. Another lets one thread
// time at once, since two would measure each other; it may take the first.
#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

// What a candidate has computed: its elements, or a sample of many, and the
// number of NaN in its memory.
struct Outcome {
  std::vector<float> values;
  int64_t nans = 0;
  double scale = 0; // of its sums, which rounding errors are relative to
};

struct Candidate {
  std::string name;
  std::function<void()> run;
  std::function<void()> before{}; // each run, and not timed; or null
  // Assembles its code, in any thread, before anything runs; or null.
  std::function<void()> assemble{};
  // Runs once on the operands of all candidates, over a result of NaN; null for
  // a candidate that is not compared.
  std::function<Outcome()> compute{};
  // How far rounding may move a right result, relative to its largest element;
  // infinity where results cannot be compared.
  double precision = 0;
  double rounding = 0; // to the result's dtype, relative to each element
  // How much longer it counts as taking, for the weights that it packs.
  double handicap = 1;
  std::function<void()> release{}; // its memory, when it runs no more; or null
};

// What a candidate must gain to have weights packed for it, and to have them
// packed in yet another way.
constexpr double kWorthPacking = 1.03, kWorthAnother = 1.1;

// Computes the outcome that decides which of several is wrong.
using Judge = std::function<Outcome()>;

struct Choice {
  size_t index = 0;
  std::vector<std::string> wrong{}; // the candidates that compute wrong results
  bool is_timed = true; // else a later build, which may time, may choose anew
};

// Returns the fastest candidate that is right, handicaps included. `key` names
// all that the choice depends on, the number of threads included; `state` adds
// what differs from time to time, such as which weights are packed: a choice
// without it holds with it, too, if that is a candidate without a handicap. A
// choice is made once in a process, by one thread at a time, and once for good
// with ZENDNN_TUNING_CACHE=path, a file that is ignored with a warning when
// another CPU or version (AOCL-DLP's included) wrote it; save_choices() writes
// it. `seconds_left` is what the caller can still spend on timing. Without any,
// the first candidate serves and nothing is remembered; so serves the best so
// far where a candidate fails, as for want of memory. `about` is a key that
// problems of nearly this size share: the first of them to be timed chooses for
// all.
//
// Candidates that are timed are also compared. Where two differ by more than
// rounding explains, `judge` computes the result, and those that are far from
// it, and farther than others, are wrong: a warning says so, and they are
// remembered like choices. ZENDNN_VERIFY=1 judges a single candidate, too.
// Throws Refused where all are wrong.
C10_EXPORT Choice choose(
    const std::string& key,
    const std::vector<Candidate>& candidates,
    double& seconds_left,
    const Judge& judge = {},
    const std::string& about = {},
    const std::string& state = {});

// The name of what was chosen for a key; empty for none.
std::string remembered(const std::string& key);

// Appends this process's new choices to the file, if any.
C10_EXPORT void save_choices();

// What one plan may spend on timing unless its description says it:
// ZENDNN_TUNING_BUDGET, 2 seconds by default.
C10_EXPORT double tuning_budget();

// Whether ZENDNN_VERIFY is 1.
bool verifies();

} // namespace at::native::zendnn::plan
