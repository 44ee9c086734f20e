#include <torch/csrc/zendnn/plan/Settings.h>
#include <torch/csrc/zendnn/plan/Tuner.h>

#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/Info.h>
#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

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
double time_candidate(const Candidate& candidate, double best) {
  candidate.run(); // the first run pays for page faults and cold code
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
      TORCH_WARN_ONCE("ZENDNN_TUNING_CACHE: ", path(), " cannot be written.");
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
  static std::string path() {
    const char* text = std::getenv("ZENDNN_TUNING_CACHE");
    return text == nullptr ? "" : text;
  }

  static std::string writer() {
    return "zendnn-tuning 1 " + version() + " " + cpu_signature() + " " +
           cpu_isa();
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
          path(),
          " is from another CPU or version and is ignored.");
    }
  }

  // Adds what the file has and `names` has not; false for another's file.
  static bool read(std::map<std::string, std::string>& names) {
    std::ifstream file(path());
    std::string line;
    if (path().empty() || !file || !std::getline(file, line)) {
      return true;
    }
    if (line != writer()) {
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
    const auto draft = path() + "." + std::to_string(::getpid());
    std::error_code failed;
    if (ours) {
      std::ofstream file(draft, std::ios::trunc);
      file << writer() << '\n';
      for (const auto& [key, name] : names) {
        file << key << '\t' << name << '\n';
      }
      file.close();
      if (!file) {
        failed = std::make_error_code(std::errc::io_error);
      } else {
        std::filesystem::rename(draft, path(), failed);
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
  // it cannot be had.
  static int lock_file() {
    while (true) {
      const int file =
          ::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      struct stat locked{}, named{};
      if (file < 0 || ::flock(file, LOCK_EX) != 0 ||
          ::fstat(file, &locked) != 0) {
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

size_t choose(
    const std::string& key,
    const std::vector<Candidate>& candidates,
    double& seconds_left) {
  auto& choices = Choices::instance();
  if (const auto known = choices.find(key, candidates)) {
    return *known; // and waits for nobody
  }
  if (candidates.size() < 2 || seconds_left <= 0) {
    return 0;
  }
  // Two candidates timed at once would only measure each other.
  std::lock_guard lock(choices.timing());
  if (const auto known = choices.find(key, candidates)) {
    return *known; // by whoever held the lock
  }
  const auto start = Clock::now();
  double best = std::numeric_limits<double>::infinity();
  size_t winner = 0;
  bool failed = false;
  // A large layer may need more than there is: the best so far is as good as
  // what is not timed at all.
  for (size_t i = 0;
       i < candidates.size() && (i < 2 || seconds_since(start) < seconds_left);
       ++i) {
    double seconds = 0;
    try {
      seconds = time_candidate(candidates[i], best);
    } catch (const std::exception&) {
      failed = true; // no memory for timing is no reason not to run
      break;
    }
    if (verbose() > 0) {
      std::printf(
          "zendnn_verbose,tune,%s,%g,%s\n",
          candidates[i].name.c_str(),
          seconds * 1e3,
          key.c_str());
    }
    if (seconds < best) {
      best = seconds;
      winner = i;
    }
  }
  std::fflush(stdout);
  seconds_left -= seconds_since(start);
  if (!failed) {
    choices.set(key, candidates[winner].name);
  }
  return winner;
}

void save_choices() {
  Choices::instance().save();
}

double tuning_budget() {
  return number_from("ZENDNN_TUNING_BUDGET", 2);
}

void forget_choices() {
  Choices::instance().forget();
}

} // namespace at::native::zendnn::plan
