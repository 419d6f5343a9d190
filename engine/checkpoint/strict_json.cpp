#include "engine/checkpoint/strict_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <set>
#include <vector>

#include "core/bounded_json.h"
#include "core/error.h"
#include "core/json_error.h"
#include "core/log.h"
#include "core/printable.h"

namespace trivet::checkpoint {
namespace {

constexpr int kDepthLimit = 16;
constexpr int64_t kCountLimit = int64_t{1} << 62;

// Finds a key that an object has twice, in a pass of its own: a parser with a callback looks through all members of an object
// after each of them that is an object itself, so a header of many tensors would take quadratic time.
class KeysOnce final : public nlohmann::json_sax<Json> {
 public:
  // The first one, if there is one. In malformed text, only the part before the first error counts.
  std::optional<std::string> first_repeated(std::string_view text) {
    Json::sax_parse(text.begin(), text.end(), this);
    return repeated_;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (keys_.back().insert(name).second) return true;
    repeated_ = name;
    return false;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  std::vector<std::set<std::string>> keys_;  // one set per open object
  std::optional<std::string> repeated_;
};

}  // namespace

std::string shown(const Json& value) { return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace)); }

void corrupt(std::string_view where, std::string_view what) {
  throw CheckpointError(ExitCode::CheckpointCorrupt, escape_control(fmt::format("{}: {}", where, what)));
}

Json parse_strict(std::string_view text, std::string_view where, int64_t most_values) {
  if (const std::string excess = json_excess(text, {.levels = kDepthLimit, .values = most_values}); !excess.empty())
    corrupt(where, excess);
  if (const auto twice = KeysOnce().first_repeated(text); twice)
    corrupt(where, fmt::format("key \"{}\" appears twice", printable(*twice)));
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    corrupt(where, fmt::format("not JSON: {}", json_error_in_words(text, error)));
  }
}

const Json& member(const Json& object, const char* key, std::string_view where) {
  if (!object.is_object()) corrupt(where, fmt::format("an object with \"{}\" is expected", key));
  const auto found = object.find(key);
  if (found == object.end()) corrupt(where, fmt::format("\"{}\" is missing", key));
  return *found;
}

int64_t to_count(const Json& value, std::string_view where) {
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(kCountLimit)
                                               : value.is_number_integer() && value.get<int64_t>() >= 0;
  if (!fits) corrupt(where, fmt::format("{} is not a count from 0 to 2^62", shown(value)));
  return value.get<int64_t>();
}

const std::string& to_text(const Json& value, std::string_view where) {
  if (!value.is_string()) corrupt(where, fmt::format("{} is not a string", shown(value)));
  return value.get_ref<const std::string&>();
}

Shape to_shape(const Json& value, std::string_view where) {
  if (!value.is_array()) corrupt(where, fmt::format("{} is not a shape", shown(value)));
  if (value.size() > Shape::kMaxDims)
    corrupt(where, fmt::format("{} dims; at most {} are accepted", value.size(), Shape::kMaxDims));
  std::vector<int64_t> dims;
  int64_t product = 1;
  for (const Json& dim : value) {
    dims.push_back(to_count(dim, where));
    if (__builtin_mul_overflow(product, dims.back(), &product) || product > kCountLimit)
      corrupt(where, fmt::format("shape {} has more than 2^62 elements", shown(value)));
  }
  return Shape(dims);
}

Json from_shape(const Shape& shape) { return Json(std::vector<int64_t>(shape.span().begin(), shape.span().end())); }

}  // namespace trivet::checkpoint
