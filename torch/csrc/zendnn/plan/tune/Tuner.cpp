#include <torch/csrc/zendnn/plan/Settings.h>
#include <torch/csrc/zendnn/plan/cache/Ahead.h>
#include <torch/csrc/zendnn/plan/describe/Description.h>
#include <torch/csrc/zendnn/plan/tune/Comparison.h>
#include <torch/csrc/zendnn/plan/tune/Tuner.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/AoclDlp.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/Info.h>
#include <ATen/native/zendnn/Logs.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/StringUtil.h>

#include <fcntl.h>
#include <omp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

using Clock = std::chrono::steady_clock;

// How much more than the cheapest a candidate may cost and stay, after its
// first run and so on, as noise explains: others may disturb the first runs.
constexpr std::array kNoise{2.5, 1.6, 1.3, 1.2, 1.12, 1.08, 1.05, 1.03};
// A candidate runs so often unless that takes too long, and more often while
// all of its runs take less than a moment: short ones say little.
constexpr int kRuns = kNoise.size(), kMostRuns = 24;
constexpr double kSecondsEach = 0.02, kMoment = 0.001;
// Enough for many large models; a process that sees more starts anew.
constexpr size_t kMostChoices = 1 << 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Candidates that run in turns, so that all meet the same noise. Those that are
// too slow to be the fastest leave.
class Race {
 public:
  Race(const std::vector<Candidate>& candidates, std::string key)
      : candidates_(candidates), key_(std::move(key)) {}
  ~Race() {
    drop([](const Runner&) { return true; });
    std::fflush(stdout);
  }
  Race(const Race&) = delete;
  Race& operator=(const Race&) = delete;

  // It has run before, which has paid for page faults and cold code.
  void enter(size_t index) {
    runners_.push_back({.index = index});
  }
  void remove(size_t index) {
    drop([&](const Runner& runner) { return runner.index == index; });
  }

  // Runs all, and those that are left until one is, or all have run enough.
  // Throws what they throw.
  template <typename IsOver>
  void run(const IsOver& is_over) {
    for (size_t round = 0; runners_.size() > 1 && (round == 0 || !is_over());
         ++round) {
      bool more = false;
      for (auto& runner : runners_) {
        if (may_run(runner)) {
          run(runner);
          more = true;
        }
      }
      if (!more) {
        return;
      }
      drop_slow(kNoise[std::min(round, kNoise.size() - 1)]);
    }
  }

  // The cheapest so far, or the only one; nothing where there is none.
  std::optional<size_t> winner() const {
    if (costs_.empty() && !runners_.empty()) {
      return runners_.front().index;
    }
    const auto cheapest = std::min_element(
        costs_.begin(), costs_.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        });
    return cheapest == costs_.end() ? std::nullopt
                                    : std::optional(cheapest->first);
  }

 private:
  struct Runner {
    size_t index;
    double fastest = std::numeric_limits<double>::infinity();
    double spent = 0;
    int runs = 0;
  };

  void run(Runner& runner) {
    const auto& candidate = candidates_[runner.index];
    if (candidate.before) {
      candidate.before();
    }
    const auto start = Clock::now();
    candidate.run();
    const auto seconds = seconds_since(start);
    runner.spent += seconds;
    ++runner.runs;
    runner.fastest = std::min(runner.fastest, seconds);
    costs_[runner.index] = runner.fastest * candidate.handicap;
  }

  static bool may_run(const Runner& runner) {
    return runner.runs < kRuns
               ? runner.spent < kSecondsEach
               : runner.runs < kMostRuns && runner.spent < kMoment;
  }

  void drop_slow(double limit) {
    const auto best = costs_.at(*winner());
    drop([&](const Runner& runner) {
      return costs_.at(runner.index) > limit * best;
    });
  }

  template <typename Goes>
  void drop(const Goes& goes) {
    std::erase_if(runners_, [&](const Runner& runner) {
      if (!goes(runner)) {
        return false;
      }
      const auto& candidate = candidates_[runner.index];
      if (verbose() > 0) {
        std::printf(
            "zendnn_verbose,tune,%s,%g,%s\n",
            candidate.name.c_str(),
            runner.runs > 0 ? runner.fastest * 1e3 : 0,
            key_.c_str());
      }
      if (candidate.release) {
        candidate.release();
      }
      return true;
    });
  }

  const std::vector<Candidate>& candidates_;
  const std::string key_; // of the choice, which verbose lines show
  std::vector<Runner> runners_;
  std::map<size_t, double> costs_; // of all that have run
};

// Assembles the code of candidates in as many threads as a run has.
void assemble(
    const std::vector<Candidate>& candidates,
    const std::vector<size_t>& chosen) {
  const auto threads = at::get_num_threads();
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (auto taken = next++; taken < chosen.size(); taken = next++) {
      const auto& candidate = candidates[chosen[taken]];
      try {
        candidate.assemble ? candidate.assemble() : void();
      } catch (...) { // its first run will say so
      }
    }
  };
  std::vector<std::thread> others;
  const auto join = c10::make_scope_exit([&] {
    for (auto& other : others) {
      other.join();
    }
  });
  try {
    while (std::ssize(others) + 1 <
           std::min<int64_t>(threads, std::ssize(chosen))) {
      others.emplace_back([&] {
        omp_set_num_threads(threads); // code is for so many
        ahead::take_all_cores();
        work();
      });
    }
  } catch (const std::exception&) { // those that are there do it all
  }
  work();
}

// The choices so far, and their file: a line that names its writer, then
// `key<tab>name` lines, of which the last of a key holds.
class Choices {
 public:
  static Choices& instance() {
    static auto* choices = new Choices;
    return *choices;
  }

  // The name for the key; empty for none.
  std::string find(const std::string& key) {
    std::lock_guard lock(mutex_);
    load();
    const auto found = names_.find(key);
    return found == names_.end() ? "" : found->second;
  }

  void set(const std::string& key, const std::string& name) {
    std::lock_guard lock(mutex_);
    if (names_.size() >= kMostChoices) {
      names_.clear();
    }
    names_[key] = name;
    unsaved_ += key + '\t' + name + '\n';
  }

  void save() {
    std::string lines;
    {
      std::lock_guard lock(mutex_);
      lines.swap(unsaved_);
      if (lines.empty() || path().empty() || foreign_) {
        return;
      }
    }
    // Without the lock: another process may be writing.
    if (!append(lines) && warns()) {
      TORCH_WARN_ONCE(
          "ZENDNN_TUNING_CACHE: ", printable(path()), " cannot be written.");
    }
  }

  void forget() {
    std::lock_guard lock(mutex_);
    names_.clear();
    unsaved_.clear();
    loaded_ = foreign_ = false;
  }

 private:
  static std::string path() {
    const char* text = read(variables::kTuningCache);
    return text == nullptr ? "" : text;
  }

  static std::string header() {
    const auto* const amd = aocl::library();
    return "zendnn-tuning 1 " + version() + " " + this_cpu().signature + " " +
           name_of(this_cpu().isa) +
           (amd == nullptr ? "" : " AOCL-DLP " + amd->version) + "\n";
  }

  // Reads the first line.
  static bool is_foreign(std::istream& file) {
    std::string line(header().size(), '\0');
    file.read(line.data(), static_cast<std::streamsize>(line.size()));
    return file.gcount() != 0 && line != header();
  }

  void load() {
    // Others than regular files, such as /dev/zero or a pipe, may never end.
    std::error_code failed;
    if (std::exchange(loaded_, true) ||
        !std::filesystem::is_regular_file(path(), failed)) {
      return;
    }
    std::ifstream file(path());
    foreign_ = is_foreign(file);
    if (foreign_) {
      if (warns()) {
        TORCH_WARN(
            "ZENDNN_TUNING_CACHE: ",
            printable(path()),
            " is from another CPU or version and is ignored.");
      }
      return;
    }
    std::string line;
    while (names_.size() < kMostChoices && std::getline(file, line)) {
      if (const auto tab = line.find('\t'); tab != std::string::npos) {
        names_[line.substr(0, tab)] = line.substr(tab + 1);
      }
    }
  }

  // Adds lines to the file, in one write under a lock, so that those of several
  // processes do not mix; false where that is not possible.
  static bool append(std::string lines) {
    const int file =
        ::open(path().c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    const auto close = c10::make_scope_exit([file] { ::close(file); });
    struct stat status{};
    if (::flock(file, LOCK_EX) != 0 || ::fstat(file, &status) != 0 ||
        !S_ISREG(status.st_mode)) {
      return false;
    }
    if (std::ifstream begin(path()); is_foreign(begin)) {
      return true; // another's, since this was read
    }
    char last = '\n';
    if (status.st_size == 0) {
      lines.insert(0, header());
    } else if (
        ::pread(file, &last, 1, status.st_size - 1) == 1 && last != '\n') {
      lines.insert(0, 1, '\n'); // after a line that was cut
    }
    return ::write(file, lines.data(), lines.size()) ==
           static_cast<ssize_t>(lines.size());
  }

  std::mutex mutex_;
  std::map<std::string, std::string> names_;
  std::string unsaved_;
  bool loaded_ = false, foreign_ = false;
};

// Before the key of those that are wrong.
constexpr const char* kWrong = "wrong ";

// What is remembered of candidates.
struct Known {
  std::optional<size_t> chosen;
  std::vector<size_t> right; // as far as is known
  std::vector<std::string> wrong;
};

// The choice for the first key that has one; those that are wrong for that key.
Known recall(
    const std::string& key,
    const std::string& about,
    const std::string& state,
    const std::vector<Candidate>& candidates) {
  auto& choices = Choices::instance();
  const auto wrong = ';' + choices.find(kWrong + key) + ';';
  Known known;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto& name = candidates[i].name;
    // Anyone may have written the file: what is not compared cannot be wrong.
    if (candidates[i].compute && wrong.find(';' + name + ';') != wrong.npos) {
      known.wrong.push_back(name);
    } else {
      known.right.push_back(i);
    }
  }
  const auto look_up = [&](const std::string& text, bool with_handicap) {
    const auto name = choices.find(text);
    for (const auto i : known.right) {
      if (candidates[i].name == name &&
          (with_handicap || candidates[i].handicap <= 1)) {
        known.chosen = i;
      }
    }
  };
  look_up(about + state, /*with_handicap=*/true);
  look_up(key + state, /*with_handicap=*/true);
  if (!known.chosen && !state.empty()) {
    look_up(about, /*with_handicap=*/false);
    look_up(key, /*with_handicap=*/false);
  }
  return known;
}

size_t first_right(const Known& known) {
  if (known.right.empty()) {
    refuse("implementations that all compute wrong results");
  }
  return known.right.front();
}

} // namespace

Choice choose(
    const std::string& key,
    const std::vector<Candidate>& candidates,
    double& seconds_left,
    const Judge& judge,
    const std::string& about,
    const std::string& state) {
  const bool verify = verifies();
  const auto near = verify ? "" : about;
  auto known = recall(key, near, state, candidates);
  if (!known.chosen && !verify &&
      (candidates.size() < 2 || seconds_left <= 0)) {
    const bool alone = candidates.size() < 2;
    return {first_right(known), known.wrong, /*is_timed=*/alone};
  }
  if (known.chosen) {
    return {*known.chosen, known.wrong}; // and waits for nobody
  }
  // Two candidates timed at once would only measure each other.
  static std::mutex timing;
  std::lock_guard lock(timing);
  known = recall(key, near, state, candidates);
  if (known.chosen) {
    return {*known.chosen, known.wrong}; // by whoever held the lock
  }
  auto& choices = Choices::instance();
  const auto start = Clock::now();
  Race race(candidates, key + state);
  Comparison comparison;
  bool failed = false;
  int entered = 0;
  const auto is_over = [&] {
    return entered >= 2 && seconds_since(start) >= seconds_left;
  };
  // A large layer may need more than there is: the best so far is as good as
  // what is not timed at all.
  const bool alone = known.right.size() == 1;
  if (!alone && seconds_left > kSecondsEach) {
    assemble(candidates, known.right);
  }
  for (const auto index : known.right) {
    if (is_over()) {
      break;
    }
    try {
      comparison.add(index, candidates[index]);
      alone ? void() : race.enter(index);
      ++entered;
    } catch (const Refused&) {
      continue; // only a library can say so this late
    } catch (const std::exception&) {
      failed = true; // no memory for timing is no reason not to run
      break;
    }
  }
  if (judge && comparison.is_open(verify)) {
    std::set<size_t> wrong;
    try {
      wrong = comparison.wrong_by(judge());
    } catch (const std::exception&) {
      failed = true; // it may want more memory than the candidates
    }
    for (const auto index : wrong) {
      const auto& name = candidates[index].name;
      if (warns()) {
        TORCH_WARN(
            "ZenDNN: ",
            name,
            " computes a wrong result and is not used for ",
            key);
      }
      known.wrong.push_back(name);
      std::erase(known.right, index);
      race.remove(index);
    }
    if (!wrong.empty()) {
      choices.set(kWrong + key, c10::Join(";", known.wrong));
    }
  }
  try {
    race.run(is_over);
  } catch (const std::exception&) {
    failed = true;
  }
  seconds_left -= seconds_since(start);
  const auto winner = race.winner();
  const auto index = winner ? *winner : first_right(known);
  if (!failed) {
    choices.set(key + state, candidates[index].name);
    if (!about.empty()) {
      choices.set(about + state, candidates[index].name);
    }
  }
  return {index, known.wrong, /*is_timed=*/!failed};
}

std::string remembered(const std::string& key) {
  return Choices::instance().find(key);
}

void save_choices() {
  Choices::instance().save();
}

double tuning_budget() {
  return read(variables::kTuningBudget);
}

bool verifies() {
  return read(variables::kVerify) == "1";
}

void forget_choices() {
  Choices::instance().forget();
}

} // namespace at::native::zendnn::plan
