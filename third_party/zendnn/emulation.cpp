#include "third_party/zendnn/emulation.h"

#include "cpu/x64/cpu_isa_traits.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;
namespace x64 = zendnn::impl::cpu::x64;

// Instruction sets by the flag that Linux shows for the last part of each.
struct Level {
  const char* flag;
  zendnn_cpu_isa_t isa;
  x64::cpu_isa_t bits;
};
constexpr Level kLevels[] = {
#include "third_party/zendnn/levels.inc"
};

// Servers of each generation.
struct Generation {
  const char* name;
  unsigned family, model;
  const char* flag;
  int64_t l1, l2, l3; // KiB
  unsigned cores_per_l3;
};
constexpr Generation kGenerations[] = {
    {"zen2", 0x17, 0x31, "avx2", 32, 512, 16 << 10, 4},
    {"zen3", 0x19, 0x01, "avx2", 32, 512, 32 << 10, 8},
    {"zen4", 0x19, 0x11, "avx512_bf16", 32, 1024, 32 << 10, 8},
    {"zen5", 0x1A, 0x02, "avx512_bf16", 48, 1024, 32 << 10, 8},
};

void set_isa(zendnn_emulated_cpu& cpu, const Level& level) {
  cpu.isa = level.isa;
  cpu.isa_bits = level.bits;
}

// A file's first line; empty where there is none.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// How many numbers a list such as 0-3,8 has.
unsigned count(const std::string& list) {
  std::istringstream in(list);
  unsigned all = 0;
  for (std::string range; std::getline(in, range, ',');) {
    unsigned first = 0, last = 0;
    const auto* const end = range.data() + range.size();
    const auto [rest, error] = std::from_chars(range.data(), end, first);
    if (error != std::errc()) {
      return 0;
    }
    last = first;
    if (rest != end) {
      std::from_chars(rest + 1, end, last);
    }
    all += last >= first ? last - first + 1 : 0;
  }
  return all;
}

// What a folder tells that has the files of /sys/devices/system; false if it
// has none.
bool read_topology(zendnn_emulated_cpu& cpu, const fs::path& root) {
  std::set<std::string> cores, sockets;
  fs::path some;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(root / "cpu", failed)) {
    const auto siblings =
        line_of(entry.path() / "topology" / "thread_siblings_list");
    if (siblings.empty()) {
      continue;
    }
    cores.insert(siblings);
    sockets.insert(line_of(entry.path() / "topology" / "physical_package_id"));
    some = entry.path();
  }
  if (cores.empty()) {
    return false;
  }
  cpu.cores = static_cast<unsigned>(cores.size());
  cpu.sockets = static_cast<unsigned>(sockets.size());
  cpu.nodes = zendnn_numa_nodes(root.c_str());
  const auto threads = std::max(count(*cores.begin()), 1U);
  for (const auto& entry : fs::directory_iterator(some / "cache", failed)) {
    const auto level =
        std::strtoul(line_of(entry.path() / "level").c_str(), nullptr, 10);
    if (level < 1 || level > 3 ||
        line_of(entry.path() / "type") == "Instruction") {
      continue;
    }
    const auto kilobytes =
        std::strtoll(line_of(entry.path() / "size").c_str(), nullptr, 10);
    cpu.caches[level - 1] = std::max(kilobytes, 0LL) << 10;
    if (level == 3) {
      cpu.cores_per_l3 = std::max(
          count(line_of(entry.path() / "shared_cpu_list")) / threads, 1U);
    }
  }
  return true;
}

// What a copy of /proc/cpuinfo beside these files tells.
void read_identity(zendnn_emulated_cpu& cpu, const fs::path& file) {
  static std::string vendor;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const auto colon = line.find(':');
    const auto key =
        line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const auto value =
        colon + 2 < line.size() ? line.substr(colon + 2) : std::string();
    const auto number = std::strtoul(value.c_str(), nullptr, 10);
    if (key == "vendor_id") {
      vendor = value;
      cpu.vendor = vendor.c_str();
    } else if (key == "cpu family") {
      cpu.family = number;
    } else if (key == "model") {
      cpu.model = number;
    } else if (key == "flags") {
      for (const auto& level : kLevels) {
        if ((' ' + value + ' ').find(' ' + std::string(level.flag) + ' ') !=
            std::string::npos) {
          set_isa(cpu, level);
          break;
        }
      }
    }
  }
}

zendnn_emulated_cpu read() {
  zendnn_emulated_cpu cpu{};
  const char* const text = std::getenv("ZENDNN_EMULATE");
  if (text == nullptr || *text == '\0') {
    return cpu;
  }
  static const std::string value = text; // the environment may change
  for (const auto& known : kGenerations) {
    if (value != known.name) {
      continue;
    }
    cpu.name = known.name;
    cpu.vendor = "AuthenticAMD";
    cpu.family = known.family;
    cpu.model = known.model;
    const auto sizes = {known.l1, known.l2, known.l3};
    std::transform(sizes.begin(), sizes.end(), cpu.caches, [](int64_t size) {
      return size << 10;
    });
    cpu.cores_per_l3 = known.cores_per_l3;
    set_isa(
        cpu,
        *std::find_if(
            std::begin(kLevels), std::end(kLevels), [&](const Level& level) {
              return std::string(level.flag) == known.flag;
            }));
    return cpu;
  }
  if (read_topology(cpu, value)) {
    cpu.name = value.c_str();
    read_identity(cpu, fs::path(value) / "cpuinfo");
    return cpu;
  }
  cpu.problem =
      "which is none of zen2 zen3 zen4 zen5 and no folder with a copy of "
      "/sys/devices/system/cpu: nothing is emulated";
  return cpu;
}

} // namespace

const zendnn_emulated_cpu* zendnn_emulated(void) {
  static const zendnn_emulated_cpu cpu = read();
  return &cpu;
}

unsigned zendnn_emulated_cache(int level) {
  const auto& cpu = *zendnn_emulated();
  if (level < 1 || level > 3) {
    return 0;
  }
  const auto sharing = level == 3 ? std::max(cpu.cores_per_l3, 1U) : 1U;
  return static_cast<unsigned>(cpu.caches[level - 1] / sharing);
}

unsigned zendnn_numa_nodes(const char* folder) {
  unsigned nodes = 0;
  std::error_code failed;
  for (const auto& entry :
       fs::directory_iterator(fs::path(folder) / "node", failed)) {
    nodes += line_of(entry.path() / "cpulist").empty() ? 0 : 1;
  }
  return nodes;
}
