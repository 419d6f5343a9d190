#include "interchange/foreign/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::foreign {

using checkpoint::corrupt;
namespace {

// Names that torch.save writes into files of weights.
constexpr std::array<std::string_view, 24> kNames{"collections.OrderedDict",
                                                  "torch._utils._rebuild_tensor_v2",
                                                  "torch._utils._rebuild_parameter",
                                                  "torch.Size",
                                                  "torch.FloatStorage",
                                                  "torch.BFloat16Storage",
                                                  "torch.HalfStorage",
                                                  "torch.DoubleStorage",
                                                  "torch.LongStorage",
                                                  "torch.IntStorage",
                                                  "torch.ShortStorage",
                                                  "torch.CharStorage",
                                                  "torch.ByteStorage",
                                                  "torch.BoolStorage",
                                                  "torch.float32",
                                                  "torch.bfloat16",
                                                  "torch.float16",
                                                  "torch.float64",
                                                  "torch.int64",
                                                  "torch.int32",
                                                  "torch.int16",
                                                  "torch.int8",
                                                  "torch.uint8",
                                                  "torch.bool"};

// Instructions, by their names in Python's pickletools.
enum class Op : uint8_t {
  Mark = '(',
  Stop = '.',
  None = 'N',
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  BinFloat = 'G',
  BinUnicode = 'X',
  EmptyTuple = ')',
  EmptyList = ']',
  EmptyDict = '}',
  Tuple = 't',
  Append = 'a',
  Appends = 'e',
  SetItem = 's',
  SetItems = 'u',
  Global = 'c',
  Reduce = 'R',
  Build = 'b',
  BinPersId = 'Q',
  BinPut = 'q',
  LongBinPut = 'r',
  BinGet = 'h',
  LongBinGet = 'j',
  Proto = 0x80,
  NewObj = 0x81,
  Tuple1 = 0x85,
  Tuple2 = 0x86,
  Tuple3 = 0x87,
  NewTrue = 0x88,
  NewFalse = 0x89,
  Long1 = 0x8a
};

constexpr uint8_t kProtocol = 2;

}  // namespace

class Pickle::Reader {
 public:
  Reader(std::string_view text, const std::string& path, AcceptedNames names, std::deque<PickleValue>& values,
         std::deque<std::string>& texts)
      : left_(text), bytes_(text.size()), path_(path), names_(names), values_(values), texts_(texts) {}

  // The value that is left when the program stops.
  const PickleValue* run() {
    while (true) {
      const auto op = static_cast<Op>(next<uint8_t>());
      if (op == Op::Stop) break;
      execute(op);
    }
    if (!left_.empty()) fail("goes on after its end");
    const PickleValue* const root = pop();
    if (!stack_.empty() || !marks_.empty()) fail("leaves more than one value");
    return root;
  }

 private:
  void execute(Op op) {
    switch (op) {
      case Op::Mark: return marks_.push_back(stack_.size());
      case Op::Stop: return;
      case Op::None: return push({.kind = PickleKind::None});
      case Op::NewTrue:
      case Op::NewFalse: return push({.kind = PickleKind::Bool, .number = op == Op::NewTrue});
      case Op::BinInt: return push_int(next<int32_t>());
      case Op::BinInt1: return push_int(next<uint8_t>());
      case Op::BinInt2: return push_int(next<uint16_t>());
      case Op::Long1: return push_long();
      case Op::BinFloat: return push({.kind = PickleKind::Float, .real = std::bit_cast<double>(big_endian(next<uint64_t>()))});
      case Op::BinUnicode: return push_text();
      case Op::EmptyTuple: return push({.kind = PickleKind::Tuple});
      case Op::EmptyList: return push({.kind = PickleKind::List});
      case Op::EmptyDict: return push({.kind = PickleKind::Dict});
      case Op::Tuple: return push_tuple(after_mark());
      case Op::Tuple1: return push_tuple(pop_last(1));
      case Op::Tuple2: return push_tuple(pop_last(2));
      case Op::Tuple3: return push_tuple(pop_last(3));
      case Op::Append: return add_items(pop_last(1), PickleKind::List);
      case Op::Appends: return add_items(after_mark(), PickleKind::List);
      case Op::SetItem: return add_items(pop_last(2), PickleKind::Dict);
      case Op::SetItems: return add_items(after_mark(), PickleKind::Dict);
      case Op::Global: return push_name();
      case Op::Reduce:
      case Op::NewObj: return call();
      case Op::Build: return build();
      case Op::BinPersId: return push({.kind = PickleKind::Object, .text = kStorageObject, .items = tuple_items(pop())});
      case Op::BinPut: return put(next<uint8_t>());
      case Op::LongBinPut: return put(next<uint32_t>());
      case Op::BinGet: return get(next<uint8_t>());
      case Op::LongBinGet: return get(next<uint32_t>());
      case Op::Proto: return check_protocol(next<uint8_t>());
    }
    refuse(fmt::format("the instruction 0x{:02x} at byte {} is none that torch.save writes for weights",
                       static_cast<unsigned>(op), bytes_ - left_.size() - 1));
  }

  [[noreturn]] void fail(const std::string& what) const { corrupt(path_, "its pickle " + what); }
  [[noreturn]] void refuse(const std::string& what) const {
    throw CheckpointError(
        ExitCode::Usage,
        fmt::format("{}: {}; nothing of the file was executed. Save weights alone: torch.save(model.state_dict(), FILE)", path_,
                    what));
  }

  std::string_view bytes(size_t count) {
    if (count > left_.size()) fail("ends in the middle of an instruction");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  template <typename T>
  T next() {
    T value{};
    std::memcpy(&value, bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  static uint64_t big_endian(uint64_t value) { return __builtin_bswap64(value); }

  PickleValue& make(PickleValue value) {
    if (values_.size() >= kMostPickleValues) fail(fmt::format("has more than {} values", kMostPickleValues));
    count_items(value.items.size());
    return values_.emplace_back(std::move(value));
  }
  // Items are counted where they are copied: a short program can copy a long tuple again and again.
  void count_items(size_t more) {
    items_ += more;
    if (items_ > kMostPickleItems) fail(fmt::format("has more than {} items", kMostPickleItems));
  }
  void push(PickleValue value) { stack_.push_back(&make(std::move(value))); }
  void push_int(int64_t number) { push({.kind = PickleKind::Int, .number = number}); }

  void push_long() {
    const auto count = next<uint8_t>();
    if (count > 8) refuse(fmt::format("an integer of {} bytes is not accepted; use at most 8", count));
    const std::string_view text = bytes(count);
    uint64_t number = count > 0 && (static_cast<uint8_t>(text.back()) & 0x80) != 0 ? ~uint64_t{0} : 0;
    std::memcpy(&number, text.data(), count);
    push_int(static_cast<int64_t>(number));
  }

  void push_text() {
    const std::string_view text = bytes(next<uint32_t>());
    push({.kind = PickleKind::Text, .text = texts_.emplace_back(text)});
  }

  void push_tuple(std::vector<const PickleValue*> items) { push({.kind = PickleKind::Tuple, .items = std::move(items)}); }

  // A name is a module and a member of it, a line each.
  void push_name() {
    std::string name(line());
    name += ".";
    name += line();
    if (names_ == AcceptedNames::OfWeights && std::ranges::find(kNames, name) == kNames.end())
      refuse(fmt::format("it uses \"{}\", which is none of the names that weights need", printable(name)));
    push({.kind = PickleKind::Name, .text = texts_.emplace_back(std::move(name))});
  }
  std::string_view line() {
    const size_t end = left_.find('\n');
    if (end == std::string_view::npos) fail("ends in the middle of a name");
    const std::string_view text = bytes(end + 1);
    return text.substr(0, end);
  }

  PickleValue* pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("takes a value that is not there");
    PickleValue* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<const PickleValue*> pop_last(size_t count) {
    std::vector<const PickleValue*> items(count);
    for (size_t i = count; i > 0; --i) items[i - 1] = pop();
    return items;
  }
  std::vector<const PickleValue*> after_mark() {
    if (marks_.empty()) fail("takes a value that is not there");
    std::vector<const PickleValue*> items = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  PickleValue& top() {
    PickleValue* const value = pop();
    stack_.push_back(value);
    return *value;
  }

  void add_items(const std::vector<const PickleValue*>& items, PickleKind kind) {
    PickleValue& to = top();
    if (names_ == AcceptedNames::Any && to.is(PickleKind::Object))
      return;  // unknown class, such as a dict with defaults: nobody reads its items
    if (to.kind != kind) fail(kind == PickleKind::List ? "appends to a value that is no list" : "sets an item of no dict");
    if (kind == PickleKind::Dict && items.size() % 2 != 0) fail("sets a key without a value");
    count_items(items.size());
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  const std::vector<const PickleValue*>& tuple_items(const PickleValue* value) const {
    if (!value->is(PickleKind::Tuple)) fail("has arguments that are no tuple");
    return value->items;
  }

  // The call of a name: recorded, never made. Dicts and sizes are data.
  void call() {
    const std::vector<const PickleValue*>& arguments = tuple_items(pop());
    const PickleValue* const name = pop();
    if (!name->is(PickleKind::Name)) fail("calls a value that is no name");
    if (name->text == "collections.OrderedDict" && arguments.empty()) return push({.kind = PickleKind::Dict});
    if (name->text == "torch.Size" && arguments.size() == 1)
      return push({.kind = PickleKind::Tuple, .items = tuple_items(arguments[0])});
    push({.kind = PickleKind::Object, .text = name->text, .items = arguments});
  }

  // Attributes of an object or a dict, which nobody reads.
  void build() {
    pop();
    if (!top().is(PickleKind::Object) && !top().is(PickleKind::Dict)) fail("gives attributes to a value that has none");
  }

  void put(uint32_t slot) { memo_[slot] = &top(); }
  void get(uint32_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail("takes a value that is not there");
    stack_.push_back(found->second);
  }

  void check_protocol(uint8_t protocol) const {
    if (protocol != kProtocol)
      refuse(fmt::format("pickle protocol {} is not accepted; use {}, the default of torch.save", protocol, kProtocol));
  }

  std::string_view left_;
  size_t bytes_, items_ = 0;
  const std::string& path_;
  AcceptedNames names_;
  std::deque<PickleValue>& values_;
  std::deque<std::string>& texts_;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, PickleValue*> memo_;
};

Pickle::Pickle(std::string_view text, const std::string& path, AcceptedNames names) {
  root_ = Reader(text, path, names, values_, texts_).run();
}

const PickleValue* find_member(const PickleValue& dict, std::string_view key) {
  if (!dict.is(PickleKind::Dict)) return nullptr;
  const PickleValue* found = nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (dict.items[i]->is(PickleKind::Text) && dict.items[i]->text == key) found = dict.items[i + 1];
  return found;
}

PickleMembers::PickleMembers(const PickleValue& dict) {
  if (!dict.is(PickleKind::Dict)) return;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (dict.items[i]->is(PickleKind::Text)) values_[dict.items[i]->text] = dict.items[i + 1];
}

const PickleValue* PickleMembers::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

}  // namespace trivet::foreign
