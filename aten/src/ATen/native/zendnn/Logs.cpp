#include <ATen/native/zendnn/Logs.h>

#include <ATen/native/zendnn/Environment.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace at::native::zendnn {
namespace {

// The level of messages, also while the levels are being read.
constexpr int kUnread = -1;
std::atomic<int> message_level{kUnread};

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find(',');
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

// ---- ZENDNN_LOG_OPTS: levels by module, as zentorch has them

constexpr int kOffset = 1; // zentorch's levels begin at -1

struct LogModule {
  std::string_view name;
  int LogLevels::* of; // null: of both
};

constexpr std::array<LogModule, 7> kLogModules{{
    {"ALL", nullptr},
    {"FWK", &LogLevels::messages},
    {"ALGO", &LogLevels::lines},
    {"API", &LogLevels::lines},
    {"CORE", &LogLevels::lines},
    {"PROF", &LogLevels::lines},
    {"TEST", &LogLevels::lines},
}};

// The levels that a text such as ALL:0,PROF:2 sets, or nothing if it is wrong.
// A module's own level overrides that of ALL. Of the modules of one view, the
// highest level holds.
std::optional<LogLevels> parse_modules(
    std::string_view text,
    LogLevels others) {
  constexpr int kUnset = -1;
  LogLevels own{kUnset, kUnset};
  for (const auto part : split_at_commas(text)) {
    const auto colon = std::min(part.find(':'), part.size());
    const auto* const module = std::find_if(
        kLogModules.begin(), kLogModules.end(), [&](const auto& row) {
          return row.name == part.substr(0, colon);
        });
    const auto digits = part.substr(std::min(colon + 1, part.size()));
    const auto* const end = digits.data() + digits.size();
    int level = 0;
    const auto [rest, error] = std::from_chars(digits.data(), end, level);
    if (module == kLogModules.end() || error != std::errc() || rest != end ||
        level < -kOffset) {
      return std::nullopt;
    }
    level = std::min<int>(level + kOffset, kEverything);
    if (module->of == nullptr) {
      others = {level, level};
    } else {
      own.*module->of = std::max(own.*module->of, level);
    }
  }
  return LogLevels{
      own.messages == kUnset ? others.messages : own.messages,
      own.lines == kUnset ? others.lines : own.lines};
}

// ---- ZENDNN_VERBOSE: libzendnn reads it, too

struct VerboseWord {
  std::string_view text;
  int lines;
};

// What libzendnn takes, and how many lines of ours go with it.
constexpr std::array<VerboseWord, 14> kVerboseWords{{
    {"0", kWarnings},
    {"1", kActions},
    {"2", kEverything},
    {"none", kWarnings},
    {"all", kEverything},
    {"-1", kEverything},
    {"error", kWarnings},
    {"warn", kWarnings},
    {"check", kWarnings},
    {"dispatch", kWarnings},
    {"profile", kEverything},
    {"profile_exec", kActions},
    {"profile_create", kWarnings},
    {"profile_externals", kWarnings},
}};

std::optional<int> parse_verbose(std::string_view text) {
  int lines = kWarnings;
  for (const auto part : split_at_commas(text)) {
    if (part.starts_with("filter=") || part.starts_with("debuginfo=")) {
      continue;
    }
    const auto* const word = std::find_if(
        kVerboseWords.begin(), kVerboseWords.end(), [&](const auto& row) {
          return row.text == part;
        });
    if (word == kVerboseWords.end()) {
      return std::nullopt;
    }
    const bool silences = part == "0" || part == "none";
    lines = silences ? word->lines : std::max(lines, word->lines);
  }
  return lines;
}

} // namespace

// Later variables override earlier ones.
LogLevels read_log_levels() {
  LogLevels levels;
  message_level = levels.messages;
  const auto set = read(variables::kDebugMode);
  levels.messages = levels.lines = set[0] - '0';
  message_level = levels.messages;
  if (const char* text = read(variables::kLogOpts)) {
    if (const auto parsed = parse_modules(text, levels)) {
      levels = *parsed;
    } else {
      warn_of(
          variables::kLogOpts.name,
          "which is no list such as ALL:0,PROF:2 of ALL, ALGO, API, CORE, "
          "FWK, PROF, TEST: it is ignored");
    }
  }
  if (read(variables::kPrimitiveLogEnable) == "1") {
    levels.lines = kEverything;
  }
  if (const char* text = read(variables::kVerbose)) {
    const auto parsed = parse_verbose(text);
    levels.lines = parsed.value_or(kWarnings);
    if (!parsed) {
      warn_of(
          variables::kVerbose.name,
          "which is none of 0 1 2, and no list of oneDNN's words such as "
          "profile_exec,filter=matmul: it stays 0");
    }
  }
  if (is_set(variables::kPyLogLevel)) {
    constexpr std::string_view kInitials = "CEWID";
    const auto level = read(variables::kPyLogLevel);
    levels.messages = static_cast<int>(kInitials.find(level[0]));
  }
  message_level = levels.messages;
  return levels;
}

const LogLevels& log_levels() {
  static const LogLevels levels = read_log_levels();
  return levels;
}

int verbose_at(int level) {
  return std::max(level - kWarnings, 0);
}

bool warns() {
  if (message_level == kUnread) {
    log_levels();
  }
  return message_level >= kWarnings;
}

} // namespace at::native::zendnn
