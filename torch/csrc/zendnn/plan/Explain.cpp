// What a plan has built, as JSON.
#include <torch/csrc/zendnn/plan/Plan.h>

#include <iomanip>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out << "\\u" << std::hex << std::setw(4) << std::setfill('0')
          << static_cast<int>(c) << std::dec;
    } else {
      out << c;
    }
  }
  out << '"';
  return out.str();
}

template <typename Items, typename Write>
void write_list(std::ostream& out, const Items& items, const Write& write) {
  out << '[';
  bool first = true;
  for (const auto& item : items) {
    out << (first ? "" : ", ");
    first = false;
    write(item);
  }
  out << ']';
}

} // namespace

std::string Plan::explain() const {
  std::vector<Entry> entries;
  {
    std::lock_guard lock(mutex_);
    entries.assign(recent_.begin(), recent_.end());
  }
  std::ostringstream out;
  out << "{\"name\": " << quoted(name_)
      << ", \"description\": " << quoted(description_)
      << ", \"packed_bytes\": " << packed_.bytes() << ", \"built\": ";
  write_list(out, entries, [&](const Entry& entry) {
    const auto& built = *entry.built.get();
    out << "{\"inputs\": ";
    write_list(out, entry.inputs, [&](const InputSignature& input) {
      out << "{\"dtype\": " << quoted(c10::toString(input.dtype))
          << ", \"sizes\": ";
      write_list(out, input.sizes, [&](int64_t size) { out << size; });
      out << ", \"strides\": ";
      write_list(out, input.strides, [&](int64_t step) { out << step; });
      out << '}';
    });
    out << ", \"numbers\": ";
    write_list(out, entry.numbers, [&](int64_t number) { out << number; });
    out << ", \"threads\": " << entry.threads;
    if (!built.executable) {
      out << ", \"refused\": " << quoted(built.refused) << '}';
      return;
    }
    double flops = 0;
    for (const auto& step : built.executable->steps()) {
      flops += step.flops;
    }
    out << ", \"layout\": " << quoted(built.layout)
        << ", \"border_copies\": " << built.executable->border_copies()
        << ", \"arena_bytes\": " << built.executable->arena_bytes()
        << ", \"gflop\": " << flops / 1e9 << ", \"wrong\": ";
    write_list(out, built.executable->wrong(), [&](const std::string& name) {
      out << quoted(name);
    });
    out << ", \"steps\": ";
    write_list(out, built.executable->steps(), [&](const Step& step) {
      out << "{\"does\": " << quoted(step.label)
          << ", \"implementation\": " << quoted(step.implementation)
          << ", \"gflop\": " << step.flops / 1e9 << '}';
    });
    out << ", \"left_to_torch\": ";
    write_list(out, built.left, [&](const Left& left) {
      const auto& node = region_.nodes[left.node];
      out << "{\"operator\": "
          << quoted(node.label.empty() ? node.op : node.label)
          << ", \"reason\": " << quoted(left.reason)
          << ", \"ms\": " << left.milliseconds << '}';
    });
    out << '}';
  });
  out << '}';
  return out.str();
}

} // namespace at::native::zendnn::plan
