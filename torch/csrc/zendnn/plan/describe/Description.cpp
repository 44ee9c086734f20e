#include <torch/csrc/zendnn/plan/describe/Description.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <set>
#include <sstream>
#include <string_view>
#include <type_traits>

namespace at::native::zendnn::plan {
namespace {

using View = std::string_view;

View trim(View text) {
  const auto first = text.find_first_not_of(' ');
  if (first == View::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<View> split(View text, char separator) {
  std::vector<View> parts;
  while (!text.empty()) {
    const auto end = text.find(separator);
    if (const auto part = trim(text.substr(0, end)); !part.empty()) {
      parts.push_back(part);
    }
    text = end == View::npos ? View{} : text.substr(end + 1);
  }
  return parts;
}

template <typename T>
T to_number(View text) {
  T number{};
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end) {
    throw Refused("'" + std::string(text) + "' is not a number");
  }
  return number;
}

// The enumerator of a name; `what` says what it is of.
template <typename E>
E named(View text, View what) {
  for (const auto& known : kNamesOf<E>) {
    if (known.name == text) {
      return known.value;
    }
  }
  throw Refused(
      "there is no " + std::string(what) + " '" + std::string(text) +
      "' in this build: optimize the module again");
}

void read(View text, bool& attribute) {
  attribute = to_number<int64_t>(text) != 0;
}

void read(View text, int64_t& attribute) {
  attribute = to_number<int64_t>(text);
}

void read(View text, double& attribute) {
  attribute = to_number<double>(text);
}

void read(View text, std::vector<int64_t>& attribute) {
  attribute.clear();
  for (const auto part : split(text, ',')) {
    attribute.push_back(to_number<int64_t>(part));
  }
}

void read(View text, std::optional<c10::ScalarType>& attribute) {
  attribute.reset();
  if (!text.empty()) {
    attribute = named<c10::ScalarType>(text, "dtype");
  }
}

// Calls a function with the name of each attribute, and the attribute.
template <typename Family, typename Each>
void each_attribute(Family& attributes, const Each& each) {
  std::visit(
      [&](auto& family) {
        using T = std::remove_cvref_t<decltype(family)>;
        if constexpr (!std::is_same_v<T, std::monostate>) {
          T::each(family, each);
        }
      },
      attributes);
}

template <typename Items, typename Text>
std::string
joined(const Items& items, const char* separator, const Text& text) {
  std::string all;
  for (const auto& item : items) {
    all += (all.empty() ? "" : separator) + text(item);
  }
  return all;
}

void set_attribute(Node& node, View key, View text) {
  const auto& keys = row_of(node.op).keys;
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
    throw Refused(
        name_of(node.op) + " has no attribute '" + std::string(key) +
        "' in this build: optimize the module again");
  }
  each_attribute(node.attributes, [&](View name, auto& attribute) {
    using T = std::remove_reference_t<decltype(attribute)>;
    if (name != key) {
      return;
    }
    if constexpr (kNamesOf<T>.empty()) {
      read(text, attribute);
    } else {
      attribute = named<T>(text, key);
    }
  });
}

// The shortest text that reads as the same number.
template <typename T>
std::string number(T value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

template <typename T>
std::string attribute_text(const T& attribute) {
  if constexpr (std::is_same_v<T, std::optional<c10::ScalarType>>) {
    return attribute ? name_of(*attribute) : "";
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return joined(attribute, ",", number<int64_t>);
  } else if constexpr (std::is_same_v<T, bool>) {
    return attribute ? "1" : "0";
  } else if constexpr (kNamesOf<T>.empty()) {
    return number(attribute);
  } else {
    return name_of(attribute);
  }
}

std::string value_text(int64_t value) {
  return '%' + std::to_string(value);
}

void write(std::ostream& out, const Node& node) {
  out << joined(node.outputs, ", ", value_text) << " = " << name_of(node.op)
      << '('
      << joined(
             node.inputs,
             ", ",
             [](const Operand& operand) { return text_of(operand); })
      << ')';
  for (const auto& [key, text] : attributes_of(node)) {
    out << ' ' << key << '=' << text;
  }
  if (!node.post.empty()) {
    out << " post=" << joined(node.post, ";", [](const PostOp& post) {
      return text_of(post);
    });
  }
  out << " # " << node.label << '\n';
}

class Parser {
 public:
  Description parse(View text) {
    int64_t number = 0;
    while (!text.empty()) {
      const auto end = text.find('\n');
      auto line = trim(text.substr(0, end));
      ++number;
      try {
        number == 1 ? read_version(line) : read_line(line);
      } catch (const Refused& error) {
        throw Refused(
            "line " + std::to_string(number) +
            " of the plan's description: " + error.what());
      }
      text = end == View::npos ? View{} : text.substr(end + 1);
    }
    if (!returned_) {
      throw Refused("the plan's description ends before its 'return'");
    }
    region_.values = static_cast<int64_t>(names_.size());
    return std::move(region_);
  }

 private:
  static void read_version(View line) {
    const auto ours = split(kHeader, ' '), words = split(line, ' ');
    if (words.size() != 2 || words[0] != ours[0]) {
      throw Refused("this is not a plan");
    }
    if (words[1] != ours[1]) {
      throw Refused(
          "the plan is of version " + std::string(words[1]) +
          " and this build reads version " + std::string(ours[1]) +
          ": optimize the module again");
    }
  }

  void read_line(View line) {
    const auto comment = line.find('#');
    const auto label =
        comment == View::npos ? View{} : trim(line.substr(comment + 1));
    line = trim(line.substr(0, comment));
    if (line.empty()) {
      return;
    }
    if (line.starts_with("without ")) {
      for (const auto name : split(line.substr(8), ' ')) {
        if (std::find(kPasses.begin(), kPasses.end(), name) == kPasses.end()) {
          throw Refused("there is no pass '" + std::string(name) + "'");
        }
        region_.without.emplace(name);
      }
      return;
    }
    if (line.starts_with("tune ")) {
      region_.tuning_budget = to_number<double>(trim(line.substr(5)));
      return;
    }
    if (line.starts_with("return")) {
      for (const auto name : split(line.substr(6), ',')) {
        region_.outputs.push_back(value(name));
      }
      returned_ = true;
      return;
    }
    const auto equals = line.find(" = ");
    if (equals == View::npos) {
      throw Refused("'" + std::string(line) + "' is not understood");
    }
    const auto outputs = split(line.substr(0, equals), ',');
    const auto rest = trim(line.substr(equals + 3));
    if (rest.starts_with("input ")) {
      const auto kind = trim(rest.substr(6));
      const auto space = std::min(kind.find(' '), kind.size());
      const auto dtype = trim(kind.substr(space));
      const bool is_number = kind == "number";
      if (!is_number && kind.substr(0, space) != "tensor") {
        throw Refused("there is no input '" + std::string(kind) + "'");
      }
      region_.inputs.push_back({make(only(outputs)), is_number});
      read(dtype, region_.inputs.back().dtype);
    } else if (rest.starts_with("constant ")) {
      const auto index = to_number<size_t>(trim(rest.substr(9)));
      if (index != region_.constants.size()) {
        throw Refused("constants are not in order");
      }
      region_.constants.push_back(make(only(outputs)));
    } else {
      read_node(outputs, rest, label);
    }
  }

  void read_node(const std::vector<View>& outputs, View text, View label) {
    const auto open = text.find('('), close = text.find(')');
    if (open == View::npos || close == View::npos || outputs.empty()) {
      throw Refused("'" + std::string(text) + "' is not an operator");
    }
    Node node{.op = op_named(trim(text.substr(0, open)))};
    node.attributes = row_of(node.op).attributes;
    node.label = label.empty() ? name_of(node.op) : std::string(label);
    for (const auto name :
         split(text.substr(open + 1, close - open - 1), ',')) {
      node.inputs.push_back(operand(name));
    }
    auto missing = row_of(node.op).required;
    for (const auto word : split(text.substr(close + 1), ' ')) {
      const auto equals = word.find('=');
      if (equals == View::npos) {
        throw Refused("'" + std::string(word) + "' is no attribute");
      }
      const auto key = word.substr(0, equals),
                 content = word.substr(equals + 1);
      if (key == "post") {
        for (const auto part : split(content, ';')) {
          node.post.push_back(post_op(part, node.inputs.size()));
        }
      } else {
        set_attribute(node, key, content);
        std::erase(missing, key);
      }
    }
    if (!missing.empty()) {
      throw Refused(
          name_of(node.op) + " states no '" + std::string(missing.front()) +
          "'");
    }
    if (const auto* const pair = std::get_if<attr::pair>(&node.attributes);
        pair != nullptr &&
        (node.op == Op::compare) != (pair->algorithm <= kernels::Pair::ge)) {
      throw Refused(
          name_of(node.op) + " by '" + name_of(pair->algorithm) + "'");
    }
    for (const auto name : outputs) {
      node.outputs.push_back(make(name));
    }
    region_.nodes.push_back(std::move(node));
  }

  static PostOp post_op(View text, size_t operands) {
    PostOp post;
    if (const auto at = text.find('@'); at != View::npos) {
      post.combination = named<kernels::Binary>(text.substr(0, at), "post-op");
      const auto parts = split(text.substr(at + 1), ':');
      post.operand = parts.empty() ? -1 : to_number<int>(parts[0]);
      if (static_cast<size_t>(post.operand) >= operands) { // or below zero
        throw Refused("'" + std::string(text) + "' names no operand");
      }
      post.keeps = parts.size() > 1 ? keeps(parts[1]) : Keeps::neither;
      return post;
    }
    const auto parts = split(text, ':');
    post.function =
        named<kernels::Eltwise>(parts.empty() ? View() : parts[0], "post-op");
    post.alpha = parts.size() > 1 ? to_number<float>(parts[1]) : 0;
    post.beta = parts.size() > 2 ? to_number<float>(parts[2]) : 0;
    return post;
  }

  static Keeps keeps(View text) {
    if (text != "result" && text != "operand") {
      throw Refused("'" + std::string(text) + "' is no operand");
    }
    return text == "result" ? Keeps::first : Keeps::second;
  }

  Operand operand(View text) const {
    if (text == "none") {
      return {};
    }
    if (text.starts_with('%')) {
      return value_operand(value(text));
    }
    return {Operand::Kind::number, to_number<int64_t>(text)};
  }

  static View only(const std::vector<View>& names) {
    if (names.size() != 1) {
      throw Refused("an input or constant wants one name");
    }
    return names[0];
  }

  int64_t make(View name) {
    const auto index = static_cast<int64_t>(names_.size());
    if (!names_.emplace(name, index).second) {
      throw Refused("'" + std::string(name) + "' is made twice");
    }
    return index;
  }

  int64_t value(View name) const {
    const auto found = names_.find(std::string(name));
    if (found == names_.end()) {
      throw Refused("'" + std::string(name) + "' is read before it is made");
    }
    return found->second;
  }

  Description region_;
  std::unordered_map<std::string, int64_t> names_;
  bool returned_ = false;
};

} // namespace

c10::SmallVector<int64_t, 8> Node::reads() const {
  c10::SmallVector<int64_t, 8> values;
  for (const auto& operand : inputs) {
    if (operand.kind == Operand::Kind::value) {
      values.push_back(operand.index);
    }
  }
  return values;
}

void refuse(const std::string& why) {
  throw Refused(why);
}

std::string text_of(const Operand& operand) {
  return operand.kind == Operand::Kind::none    ? "none"
         : operand.kind == Operand::Kind::value ? value_text(operand.index)
                                                : std::to_string(operand.index);
}

std::string text_of(const PostOp& post) {
  if (!post.is_binary()) {
    return post.name() + ':' + number(post.alpha) + ':' + number(post.beta);
  }
  const auto* const keeps = post.keeps == Keeps::first    ? ":result"
                            : post.keeps == Keeps::second ? ":operand"
                                                          : "";
  return post.name() + '@' + std::to_string(post.operand) + keeps;
}

std::vector<std::pair<std::string_view, std::string>> attributes_of(
    const Node& node) {
  std::vector<std::string> defaults;
  each_attribute(
      row_of(node.op).attributes, [&](View /*name*/, const auto& attribute) {
        defaults.push_back(attribute_text(attribute));
      });
  std::vector<std::pair<View, std::string>> all;
  const auto& required = row_of(node.op).required;
  size_t index = 0;
  each_attribute(node.attributes, [&](View name, const auto& attribute) {
    auto text = attribute_text(attribute);
    const bool is_required =
        std::find(required.begin(), required.end(), name) != required.end();
    if (is_required || text != defaults[index]) {
      all.emplace_back(name, std::move(text));
    }
    ++index;
  });
  return all;
}

std::string write(const Description& region) {
  std::ostringstream text;
  text << kHeader << '\n';
  if (!region.without.empty()) {
    const std::set names(region.without.begin(), region.without.end());
    text << "without " << joined(names, " ", std::identity()) << '\n';
  }
  if (region.tuning_budget) {
    text << "tune " << number(*region.tuning_budget) << '\n';
  }
  for (const auto& input : region.inputs) {
    text << value_text(input.value) << " = input "
         << (input.is_number ? "number" : "tensor")
         << (input.dtype ? ' ' + name_of(*input.dtype) : "") << '\n';
  }
  for (size_t i = 0; i < region.constants.size(); ++i) {
    text << value_text(region.constants[i]) << " = constant " << i << '\n';
  }
  for (const auto& node : region.nodes) {
    write(text, node);
  }
  text << "return " << joined(region.outputs, ", ", value_text) << '\n';
  return text.str();
}

Description parse(const std::string& text) {
  return Parser().parse(text);
}

} // namespace at::native::zendnn::plan
