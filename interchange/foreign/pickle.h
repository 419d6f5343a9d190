// Reads the pickles of torch.save without being a pickle machine: nothing is imported, called or executed.
//
// A pickle is a program whose instructions build objects, and some of them call functions by name. This reader knows the
// instructions that torch.save writes (protocol 2), and a list of names. A call of a name on the list becomes an Object: the
// name and the arguments, as data. Any other name, and any other instruction, is refused by name. The meaning of an
// Object is up to who reads it (pt_file.h knows tensors). Checkpoints hold objects of the program that saved them, so
// there a call of any name may become an Object (AcceptedNames::Any).
//
// Errors are CheckpointErrors: CheckpointCorrupt for a pickle that contradicts itself, Usage for what is refused.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trivet::foreign {

enum class PickleKind : uint8_t { None, Bool, Int, Float, Text, Tuple, List, Dict, Name, Object };

struct PickleValue {
  PickleKind kind = PickleKind::None;
  int64_t number = 0;  // Int; Bool: 0 or 1
  double real = 0;     // Float
  // Text; Name, Object: "torch._utils._rebuild_tensor_v2". It belongs to the Pickle: thousands of objects share a long name.
  std::string_view text = {};
  // Elements of a Tuple or a List; key, value, key, value ... of a Dict; arguments of an Object. They belong to the Pickle, may
  // occur in several places, and may contain the value itself.
  std::vector<const PickleValue*> items;

  bool is(PickleKind which) const { return kind == which; }
  bool is_object(std::string_view name) const { return kind == PickleKind::Object && text == name; }
};

// The name of the Object that stands for a storage (a persistent id).
inline constexpr const char* kStorageObject = "storage";
// Values of one pickle: a tensor has about 20.
inline constexpr size_t kMostPickleValues = 2'000'000;
inline constexpr size_t kMostPickleItems = 16'000'000;  // in all values together

enum class AcceptedNames : uint8_t { OfWeights, Any };

class Pickle {
 public:
  // `path`: for messages.
  Pickle(std::string_view text, const std::string& path, AcceptedNames names = AcceptedNames::OfWeights);
  Pickle(Pickle&&) = default;
  Pickle& operator=(Pickle&&) = default;

  const PickleValue& root() const { return *root_; }

 private:
  class Reader;
  std::deque<PickleValue> values_;  // addresses of elements stay valid
  std::deque<std::string> texts_;   // these addresses stay valid, too
  const PickleValue* root_ = nullptr;
};

// The value of a text key of a Dict; null: absent, or no Dict. The last one counts, as in Python.
const PickleValue* find_member(const PickleValue& dict, std::string_view key);

// Finds many keys of one Dict as find_member does. The Dict must outlive this.
class PickleMembers {
 public:
  explicit PickleMembers(const PickleValue& dict);
  const PickleValue* find(std::string_view key) const;

 private:
  std::unordered_map<std::string_view, const PickleValue*> values_;
};

}  // namespace trivet::foreign
