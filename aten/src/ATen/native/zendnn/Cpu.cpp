#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>

#include <ATen/Parallel.h>
#include <oneapi/zendnn/zendnn.h>
#include <third_party/zendnn/emulation.h>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace at::native::zendnn {
namespace {

constexpr const char* kEmulate = "ZENDNN_EMULATE";

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// Later versions of libzendnn report AVX10.2 by this mask. It includes neither
// AMX nor AVX2's bfloat16.
constexpr auto kAvx10 = static_cast<Isa>(0x21ef);
static_assert(!includes(kAvx10, Isa::amx) && !includes(kAvx10, Isa::avx2_bf16));
static_assert(includes(kAvx10, Isa::avx512_bf16));
static_assert(
    includes(Isa::avx512, Isa::avx2) && includes(Isa::avx2, Isa::none));
static_assert(!includes(Isa::avx512, Isa::avx2_vnni));

// Zeros where the CPU has no such leaf.
Leaf leaf(unsigned number, unsigned part = 0) {
  Leaf read;
  __get_cpuid_count(number, part, &read.a, &read.b, &read.c, &read.d);
  return read;
}

std::string text_in(std::initializer_list<unsigned> registers) {
  std::string text;
  for (const auto& four : registers) {
    text.append(reinterpret_cast<const char*>(&four), sizeof four);
  }
  return text.c_str(); // without the zeros at its end
}

void read_caches(Cpu& cpu, unsigned threads_per_core) {
  constexpr unsigned kIntel = 4, kAmd = 0x8000001D, kMost = 8, kCode = 2;
  const auto source = leaf(kIntel).a != 0 ? kIntel : kAmd;
  for (unsigned part = 0; part < kMost; ++part) {
    const auto [a, b, c, d] = leaf(source, part);
    const auto kind = a & 0x1F, level = a >> 5 & 7;
    if (kind == kCode || level == 0 || level > cpu.caches.size()) {
      continue;
    }
    const int64_t ways = (b >> 22) + 1, partitions = (b >> 12 & 0x3FF) + 1;
    const int64_t line = (b & 0xFFF) + 1, sets = int64_t{c} + 1;
    cpu.caches[level - 1] = ways * partitions * line * sets;
    if (level == cpu.caches.size()) {
      cpu.cores_per_l3 = ((a >> 14 & 0xFFF) + 1) / threads_per_core;
    }
  }
}

Cpu read_cpu() {
  constexpr unsigned kName = 0x80000002, kTopology = 0xB;
  Cpu cpu;
  const auto vendor = leaf(0), version = leaf(1);
  cpu.vendor = text_in({vendor.b, vendor.d, vendor.c});
  const auto x = leaf(kName), y = leaf(kName + 1), z = leaf(kName + 2);
  cpu.name =
      text_in({x.a, x.b, x.c, x.d, y.a, y.b, y.c, y.d, z.a, z.b, z.c, z.d});
  std::ostringstream signature;
  signature << "0x" << std::hex << version.a;
  cpu.signature = signature.str();
  const auto family = version.a >> 8 & 0xF;
  cpu.family = family + (family == 0xF ? version.a >> 20 & 0xFF : 0);
  cpu.model =
      (version.a >> 4 & 0xF) | (family >= 6 ? version.a >> 12 & 0xF0 : 0);
  cpu.isa = static_cast<Isa>(zendnn_get_effective_cpu_isa()); // as emulated
  cpu.kernels = includes(cpu.isa, Isa::avx512) ? "avx512"
                : includes(cpu.isa, Isa::avx2) ? "avx2"
                                               : "none";
  cpu.clflushopt = (leaf(7).b >> 23 & 1) != 0;
  const auto threads_per_core = std::max(leaf(kTopology).b & 0xFFFF, 1U);
  cpu.cores = sysconf(_SC_NPROCESSORS_ONLN) / threads_per_core;
  cpu.nodes = std::max(zendnn_numa_nodes("/sys/devices/system"), 1U);
  read_caches(cpu, threads_per_core);
  return cpu;
}

// Makes `cpu` the one that ZENDNN_EMULATE names, as far as that is known.
void emulate(Cpu& cpu) {
  const auto& as = *zendnn_emulated();
  if (as.problem != nullptr) {
    warn_of(kEmulate, as.problem);
  }
  if (as.name == nullptr) {
    return;
  }
  cpu.emulated_on = std::exchange(cpu.name, as.name);
  if (as.vendor != nullptr) {
    cpu.vendor = as.vendor;
    cpu.family = as.family;
    cpu.model = as.model;
  }
  for (size_t i = 0; i < cpu.caches.size(); ++i) {
    cpu.caches[i] = as.caches[i] != 0 ? as.caches[i] : cpu.caches[i];
  }
  cpu.cores = as.cores != 0 ? as.cores : cpu.cores;
  cpu.cores_per_l3 = as.cores_per_l3 != 0 ? as.cores_per_l3 : cpu.cores_per_l3;
  cpu.nodes = as.nodes != 0 ? as.nodes : cpu.nodes;
  // Choices by time are those of this CPU for the sizes of that one.
  std::ostringstream signature;
  signature << cpu.signature << " as " << std::hex << as.family << '/'
            << as.model << std::dec << ',' << cpu.cores << ','
            << cpu.cores_per_l3;
  for (const auto bytes : cpu.caches) {
    signature << ',' << bytes;
  }
  cpu.signature = signature.str();
  if (const auto wanted = static_cast<Isa>(as.isa);
      !includes(cpu.isa, wanted)) {
    std::ostringstream rest;
    rest << "whose " << name_of(wanted) << " this CPU or ZENDNN_MAX_CPU_ISA "
         << "does not allow: " << name_of(cpu.isa) << " is used";
    if (!includes(cpu.isa, Isa::avx2)) {
      rest << ", without vector kernels";
    }
    warn_of(kEmulate, rest.str());
  }
}

// Plans cut work for as many threads as the emulated machine has cores.
const bool has_threads = [] {
  const auto cores = zendnn_emulated()->cores;
  if (cores != 0 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(static_cast<int>(cores));
  }
  return true;
}();

} // namespace

const Cpu& this_cpu() {
  static const auto* const read = [] {
    auto* const cpu = new Cpu(read_cpu()); // outlives who asks
    emulate(*cpu);
    return cpu;
  }();
  return *read;
}

unsigned node_of_thread() {
  unsigned node = 0;
  syscall(SYS_getcpu, nullptr, &node, nullptr);
  return node;
}

bool threads_span_nodes() {
  const auto nodes = this_cpu().nodes;
  if (nodes == 1 || zendnn_emulated()->nodes != 0) {
    return nodes > 1;
  }
  constexpr unsigned kMostNodes = 64;
  std::array<std::atomic<bool>, kMostNodes> has{};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    has[node_of_thread() % kMostNodes] = true;
  });
  return std::count(has.begin(), has.end(), true) > 1;
}

const char* name_of(Isa isa) {
  for (const auto& [least, title] : kIsas) {
    if (includes(isa, least)) {
      return title;
    }
  }
  return "none";
}

} // namespace at::native::zendnn
