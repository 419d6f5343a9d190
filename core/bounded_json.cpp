#include "core/bounded_json.h"

#include <fmt/format.h>

namespace trivet {

std::string json_excess(std::string_view text, const JsonLimits& limits) {
  int depth = 0;
  int64_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
      continue;
    }
    if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limits.levels) return fmt::format("is nested deeper than {} levels", limits.levels);
      ++values;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++values;
    }
    if (values > limits.values) return fmt::format("has more than {} values of JSON", limits.values);
  }
  return "";
}

}  // namespace trivet
