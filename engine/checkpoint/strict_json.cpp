#include "engine/checkpoint/strict_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>
#include <vector>

#include "core/bounded_json.h"
#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"

namespace trivet::checkpoint {
namespace {

constexpr int kDepthLimit = 16;
constexpr int64_t kCountLimit = int64_t{1} << 62;

}  // namespace

std::string shown(const Json& value) { return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace)); }

void corrupt(std::string_view where, std::string_view what) {
  throw CheckpointError(ExitCode::CheckpointCorrupt, escape_control(fmt::format("{}: {}", where, what)));
}

Json parse_strict(std::string_view text, std::string_view where, int64_t most_values) {
  if (const std::string excess = json_excess(text, {.levels = kDepthLimit, .values = most_values}); !excess.empty())
    corrupt(where, excess);
  std::vector<std::set<std::string>> keys;  // one set per open object
  const auto check = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      corrupt(where, fmt::format("key \"{}\" appears twice", printable(parsed.get<std::string>())));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& error) {
    corrupt(where, fmt::format("not JSON: {}", printable(error.what())));
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
