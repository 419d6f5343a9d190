#include "engine/config/section_builder.h"

#include "engine/config/json_reader.h"

namespace trivet::config {
namespace {

KeyType type_of_default(const JsonNode& node) {
  switch (node.kind) {
    case JsonKind::Null: return KeyType::Any;
    case JsonKind::Bool: return KeyType::Bool;
    case JsonKind::Number: return node.text.find_first_of(".e") == std::string::npos ? KeyType::Integer : KeyType::Number;
    case JsonKind::String: return KeyType::String;
    case JsonKind::List: return KeyType::List;
    case JsonKind::Object: return KeyType::Object;
  }
  return KeyType::Any;
}

KeyEntry unstored(const std::string& path, const std::string& default_json, const std::string& meaning) {
  const JsonNode value = read_json(default_json, path);
  KeyEntry entry;
  entry.path = path;
  entry.type = type_of_default(value);
  entry.nullable = value.kind == JsonKind::Null;
  entry.default_json = default_json;
  entry.meaning = meaning;
  return entry;
}

}  // namespace

KeyRefiner SectionBase::unsupported(const std::string& name, const std::string& default_json, const std::string& meaning) {
  KeyEntry entry = unstored(path(name), default_json, meaning);
  entry.effect = Effect::NotImplemented;
  return KeyRefiner(table_.add(std::move(entry)));
}

KeyRefiner SectionBase::unused(const std::string& name, const std::string& default_json, const std::string& meaning) {
  KeyEntry entry = unstored(path(name), default_json, meaning);
  entry.effect = Effect::NotUsed;
  return KeyRefiner(table_.add(std::move(entry)));
}

KeyRefiner SectionBase::inert(const std::string& name, const std::string& default_json, const std::string& meaning,
                              const std::string& reason) {
  KeyEntry entry = unstored(path(name), default_json, meaning);
  entry.effect = Effect::Inert;
  entry.reason = reason;
  return KeyRefiner(table_.add(std::move(entry)));
}

KeyRefiner SectionBase::custom(const std::string& name, KeyType type, const std::string& meaning,
                               std::function<void(Config&, const JsonNode&)> set,
                               std::function<std::string(const Config&)> get) {
  KeyEntry entry;
  entry.path = path(name);
  entry.type = type;
  entry.meaning = meaning;
  entry.default_json = get(Config{});
  if (own_) entry.origin = Origin::Own;
  entry.set = std::move(set);
  entry.get = std::move(get);
  return KeyRefiner(table_.add(std::move(entry)));
}

}  // namespace trivet::config
