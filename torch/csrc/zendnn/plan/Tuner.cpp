#include <torch/csrc/zendnn/plan/Description.h>
#include <torch/csrc/zendnn/plan/Settings.h>
#include <torch/csrc/zendnn/plan/Tuner.h>

#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/Info.h>
#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 6;
constexpr double kSecondsEach = 0.02;
// Enough for many large models; a process that sees more starts anew.
constexpr size_t kMostChoices = 1 << 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The fastest of several runs; gives up on what is clearly slower than `best`.
// An earlier run has paid for page faults and cold code.
double time_candidate(const Candidate& candidate, double best) {
  double fastest = std::numeric_limits<double>::infinity(), spent = 0;
  for (int i = 0; i < kRepeats && spent < kSecondsEach; ++i) {
    if (candidate.before) {
      candidate.before();
    }
    const auto start = Clock::now();
    candidate.run();
    const auto seconds = seconds_since(start);
    spent += seconds;
    fastest = std::min(fastest, seconds);
    if (fastest > 2 * best) {
      break;
    }
  }
  return fastest;
}

// How many times what rounding explains two results differ by at most; infinity
// where one is no number.
double distance(
    const Outcome& a,
    const Outcome& b,
    double precision,
    double rounding) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.nans != b.nans || a.values.size() != b.values.size()) {
    return kInfinity;
  }
  double largest = b.scale;
  for (const auto value : b.values) {
    largest = std::isfinite(value)
                  ? std::max(largest, std::abs(static_cast<double>(value)))
                  : largest;
  }
  double most = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double x = a.values[i], y = b.values[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) {
      continue;
    }
    const auto allowed = precision * largest + rounding * std::abs(y);
    const auto far = std::abs(x - y) / allowed;
    if (std::isnan(far)) {
      return kInfinity;
    }
    most = std::max(most, far);
  }
  return most;
}

// The results of one choice's candidates so far: those that are the first one's
// but for rounding, and the others.
class Comparison {
 public:
  // Runs the candidate once.
  void add(size_t index, const Candidate& candidate) {
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
      if (distance(outcome, group.outcome, precision, candidate.rounding) <=
          1) {
        group.members.push_back(index);
        return;
      }
    }
    groups_.push_back({std::move(outcome), loss, candidate.rounding, {index}});
  }

  // Whether there is something to decide.
  bool is_open(bool verify) const {
    return groups_.size() > 1 || (verify && !groups_.empty());
  }

  // The candidates that are wrong when this is right.
  std::set<size_t> wrong_by(const Outcome& right) const {
    constexpr double kFarther = 4;
    std::vector<double> distances;
    for (const auto& group : groups_) {
      distances.push_back(
          distance(group.outcome, right, group.precision, group.rounding));
    }
    const auto least =
        groups_.size() > 1
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

 private:
  struct Group {
    Outcome outcome;
    double precision;
    double rounding;
    std::vector<size_t> members;
  };
  std::vector<Group> groups_;
};

// The choices so far, and the file that they are kept in: a line that says who
// wrote it, then `key<tab>name` lines.
class Choices {
 public:
  static Choices& instance() {
    static auto* choices = new Choices;
    return *choices;
  }

  // The index of the candidate that was chosen for the key, if any.
  std::optional<size_t> find(
      const std::string& key,
      const std::vector<Candidate>& candidates) {
    std::lock_guard lock(mutex_);
    load();
    const auto found = names_.find(key);
    for (size_t i = 0; found != names_.end() && i < candidates.size(); ++i) {
      if (candidates[i].name == found->second) {
        return i;
      }
    }
    return std::nullopt;
  }

  // The names of the candidates that were found wrong for the key.
  std::vector<std::string> wrong(const std::string& key) {
    std::lock_guard lock(mutex_);
    load();
    std::vector<std::string> names;
    const auto found = names_.find(kWrong + key);
    std::istringstream text(found == names_.end() ? "" : found->second);
    for (std::string name; std::getline(text, name, ';');) {
      names.push_back(name);
    }
    return names;
  }

  void set_wrong(
      const std::string& key,
      const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) {
      text += (text.empty() ? "" : ";") + name;
    }
    set(kWrong + key, text);
  }

  void set(const std::string& key, const std::string& name) {
    std::lock_guard lock(mutex_);
    if (names_.size() >= kMostChoices) {
      names_.clear();
    }
    names_[key] = name;
    unsaved_ = true;
  }

  void save() {
    std::map<std::string, std::string> names;
    {
      std::lock_guard lock(mutex_);
      if (!unsaved_ || path().empty() || foreign_) {
        return;
      }
      unsaved_ = false;
      names = names_;
    }
    // Without the lock: another process may be writing.
    if (!write(std::move(names))) {
      TORCH_WARN_ONCE(
          "ZENDNN_TUNING_CACHE: ", printable(path()), " cannot be written.");
    }
  }

  void forget() {
    std::lock_guard lock(mutex_);
    names_.clear();
    loaded_ = unsaved_ = foreign_ = false;
  }

  std::mutex& timing() {
    return timing_;
  }

 private:
  static constexpr const char* kWrong = "wrong ";

  static std::string path() {
    const char* text = std::getenv("ZENDNN_TUNING_CACHE");
    return text == nullptr ? "" : text;
  }

  static std::string writer() {
    return "zendnn-tuning 1 " + version() + " " + this_cpu().signature + " " +
           name_of(this_cpu().isa);
  }

  void load() {
    if (loaded_) {
      return;
    }
    loaded_ = true;
    foreign_ = !read(names_);
    if (foreign_) {
      TORCH_WARN(
          "ZENDNN_TUNING_CACHE: ",
          printable(path()),
          " is from another CPU or version and is ignored.");
    }
  }

  // Adds what the file has and `names` has not; false for another's file. What
  // is no regular file, such as /dev/zero or a pipe, may never end.
  static bool read(std::map<std::string, std::string>& names) {
    std::error_code failed;
    if (!std::filesystem::is_regular_file(path(), failed)) {
      return true;
    }
    const auto header = writer();
    std::ifstream file(path());
    std::string line(header.size() + 1, '\n');
    file.read(line.data(), static_cast<std::streamsize>(line.size()));
    if (file.gcount() == 0) {
      return true;
    }
    if (line != header + '\n') {
      return false;
    }
    while (names.size() < kMostChoices && std::getline(file, line)) {
      if (const auto tab = line.find('\t'); tab != std::string::npos) {
        names.emplace(line.substr(0, tab), line.substr(tab + 1));
      }
    }
    return true;
  }

  // Written beside and renamed. Who replaces the file holds a lock on it, so
  // that nothing is lost between reading and renaming.
  static bool write(std::map<std::string, std::string> names) {
    const auto lock = lock_file();
    if (lock < 0) {
      return false;
    }
    const bool ours = read(names);
    std::error_code failed;
    // A link stays, and so do the permissions of what it leads to.
    const auto target = std::filesystem::canonical(path(), failed);
    auto draft = target;
    draft += "." + std::to_string(::getpid());
    if (ours && !failed) {
      std::ofstream file(draft, std::ios::trunc);
      file << writer() << '\n';
      for (const auto& [key, name] : names) {
        file << key << '\t' << name << '\n';
      }
      file.close();
      if (!file) {
        failed = std::make_error_code(std::errc::io_error);
      } else {
        const auto status = std::filesystem::status(target, failed);
        std::filesystem::permissions(draft, status.permissions(), failed);
        std::filesystem::rename(draft, target, failed);
      }
      if (failed) {
        std::error_code ignored;
        std::filesystem::remove(draft, ignored);
      }
    }
    ::close(lock);
    return !failed;
  }

  // A descriptor of the file, made when missing, that holds the lock; -1 when
  // it cannot be had, or is one that must not be replaced, such as /dev/null.
  static int lock_file() {
    while (true) {
      const int file =
          ::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      struct stat locked{}, named{};
      if (file < 0 || ::fstat(file, &locked) != 0 || !S_ISREG(locked.st_mode) ||
          ::flock(file, LOCK_EX) != 0) {
        if (file >= 0) {
          ::close(file);
        }
        return -1;
      }
      if (::stat(path().c_str(), &named) == 0 &&
          named.st_ino == locked.st_ino && named.st_dev == locked.st_dev) {
        return file;
      }
      ::close(file); // another process has put a new file in its place
    }
  }

  std::mutex mutex_, timing_;
  std::map<std::string, std::string> names_;
  bool loaded_ = false, foreign_ = false, unsaved_ = false;
};

} // namespace

Choice choose(
    const std::string& key,
    const std::vector<Candidate>& candidates,
    double& seconds_left,
    const Judge& judge,
    const std::string& about) {
  auto& choices = Choices::instance();
  // Anyone may have written the file: what is not compared cannot be wrong.
  const auto struck_off = [&] {
    const auto wrong = choices.wrong(key);
    std::vector<std::string> names;
    for (const auto& candidate : candidates) {
      if (candidate.compute &&
          std::find(wrong.begin(), wrong.end(), candidate.name) !=
              wrong.end()) {
        names.push_back(candidate.name);
      }
    }
    return names;
  };
  if (const auto known = choices.find(key, candidates)) {
    return {*known, struck_off()}; // and waits for nobody
  }
  const auto eligible = [&] {
    const auto wrong = struck_off();
    std::vector<size_t> indices;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (std::find(wrong.begin(), wrong.end(), candidates[i].name) ==
          wrong.end()) {
        indices.push_back(i);
      }
    }
    if (indices.empty()) {
      refuse("implementations that all compute wrong results");
    }
    return indices;
  };
  const bool verify = verifies();
  if (!verify && !about.empty()) {
    const auto known = choices.find(about, candidates);
    const auto may = eligible();
    if (known && std::find(may.begin(), may.end(), *known) != may.end()) {
      return {*known, struck_off()};
    }
  }
  if (!verify && (candidates.size() < 2 || seconds_left <= 0)) {
    return {eligible().front(), struck_off()};
  }
  // Two candidates timed at once would only measure each other.
  std::lock_guard lock(choices.timing());
  if (const auto known = choices.find(key, candidates)) {
    return {*known, struck_off()}; // by whoever held the lock
  }
  const auto start = Clock::now();
  const auto indices = eligible();
  std::map<size_t, double> times;
  Comparison comparison;
  double best = std::numeric_limits<double>::infinity();
  bool failed = false;
  // A large layer may need more than there is: the best so far is as good as
  // what is not timed at all.
  for (size_t i = 0;
       i < indices.size() && (i < 2 || seconds_since(start) < seconds_left);
       ++i) {
    const auto& candidate = candidates[indices[i]];
    double seconds = 0;
    try {
      comparison.add(indices[i], candidate);
      seconds = indices.size() > 1 ? time_candidate(candidate, best) : 0;
    } catch (const std::exception&) {
      failed = true; // no memory for timing is no reason not to run
      break;
    }
    if (verbose() > 0) {
      std::printf(
          "zendnn_verbose,tune,%s,%g,%s\n",
          candidate.name.c_str(),
          seconds * 1e3,
          key.c_str());
    }
    times[indices[i]] = seconds;
    best = std::min(best, seconds);
  }
  std::fflush(stdout);
  seconds_left -= seconds_since(start);
  if (judge && comparison.is_open(verify)) {
    auto names = struck_off();
    std::set<size_t> wrong;
    try {
      wrong = comparison.wrong_by(judge());
    } catch (const std::exception&) {
      failed = true; // it may want more memory than the candidates
    }
    for (const auto index : wrong) {
      const auto& name = candidates[index].name;
      TORCH_WARN(
          "ZenDNN: ",
          name,
          " computes a wrong result and is not used for ",
          key);
      names.push_back(name);
      times.erase(index);
    }
    if (!names.empty()) {
      choices.set_wrong(key, names);
    }
  }
  const auto winner = std::min_element(
      times.begin(), times.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  const auto index = winner == times.end() ? eligible().front() : winner->first;
  if (!failed) {
    choices.set(key, candidates[index].name);
    if (!about.empty()) {
      choices.set(about, candidates[index].name);
    }
  }
  return {index, struck_off()};
}

void save_choices() {
  Choices::instance().save();
}

double tuning_budget() {
  return number_from("ZENDNN_TUNING_BUDGET", 2);
}

bool verifies() {
  return word_from("ZENDNN_VERIFY", {"0", "1"}) == "1";
}

void forget_choices() {
  Choices::instance().forget();
}

} // namespace at::native::zendnn::plan
