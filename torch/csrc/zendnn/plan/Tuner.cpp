#include <torch/csrc/zendnn/plan/Settings.h>
#include <torch/csrc/zendnn/plan/Tuner.h>

#include <ATen/native/zendnn/Info.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>

namespace at::native::zendnn::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 6;
constexpr double kSecondsEach = 0.02;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The fastest of several runs; gives up on what is clearly slower than `best`.
double time_candidate(const Candidate& candidate, double best) {
  candidate.run(); // the first run pays for page faults and cold code
  double fastest = std::numeric_limits<double>::infinity(), spent = 0;
  for (int i = 0; i < kRepeats && spent < kSecondsEach; ++i) {
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

  bool find(const std::string& key, std::string& name) {
    std::lock_guard lock(mutex_);
    load();
    const auto found = names_.find(key);
    if (found == names_.end()) {
      return false;
    }
    name = found->second;
    return true;
  }

  void set(const std::string& key, const std::string& name) {
    std::lock_guard lock(mutex_);
    names_[key] = name;
    save();
  }

  void forget() {
    std::lock_guard lock(mutex_);
    names_.clear();
    loaded_ = false;
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
    std::ifstream file(path());
    std::string line;
    if (path().empty() || !file || !std::getline(file, line)) {
      return;
    }
    if (line != writer()) {
      TORCH_WARN(
          "ZENDNN_TUNING_CACHE: ",
          path(),
          " is from another CPU or version and is ignored.");
      foreign_ = true;
      return;
    }
    while (std::getline(file, line)) {
      if (const auto tab = line.find('\t'); tab != std::string::npos) {
        names_.emplace(line.substr(0, tab), line.substr(tab + 1));
      }
    }
  }

  // Written beside and renamed, so that readers see the old file or the new.
  void save() const {
    if (path().empty() || foreign_) {
      return;
    }
    const auto draft = path() + "." + std::to_string(::getpid());
    std::ofstream file(draft, std::ios::trunc);
    file << writer() << '\n';
    for (const auto& [key, name] : names_) {
      file << key << '\t' << name << '\n';
    }
    file.close();
    std::error_code failed;
    if (file) {
      std::filesystem::rename(draft, path(), failed);
    }
    if (!file || failed) {
      std::filesystem::remove(draft, failed);
      TORCH_WARN_ONCE("ZENDNN_TUNING_CACHE: ", path(), " cannot be written.");
    }
  }

  std::mutex mutex_, timing_;
  std::map<std::string, std::string> names_;
  bool loaded_ = false, foreign_ = false;
};

} // namespace

size_t choose(
    const std::string& key,
    const std::vector<Candidate>& candidates,
    double& seconds_left) {
  auto& choices = Choices::instance();
  // Two candidates timed at once would only measure each other.
  std::lock_guard lock(choices.timing());
  std::string chosen;
  if (choices.find(key, chosen)) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].name == chosen) {
        return i;
      }
    }
  }
  if (candidates.size() < 2 || seconds_left <= 0) {
    return 0;
  }
  const auto start = Clock::now();
  double best = std::numeric_limits<double>::infinity();
  size_t winner = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto seconds = time_candidate(candidates[i], best);
    if (seconds < best) {
      best = seconds;
      winner = i;
    }
  }
  seconds_left -= seconds_since(start);
  choices.set(key, candidates[winner].name);
  return winner;
}

double tuning_budget() {
  const char* text = std::getenv("ZENDNN_TUNING_BUDGET");
  return text == nullptr ? 2.0 : std::atof(text);
}

void forget_choices() {
  Choices::instance().forget();
}

} // namespace at::native::zendnn::plan
