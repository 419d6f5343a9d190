// Bounds for JSON that somebody else wrote, whether it comes from a file or from a peer.
//
// A parser turns a value of two bytes into as many as 200 bytes of memory, and what walks over nested values runs out of stack.
// So the text is looked over before it is parsed: how deeply it is nested, and how many values it has.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trivet {

struct JsonLimits {
  int levels = 16;             // limit to nested lists and objects
  int64_t values = 2'000'000;  // each list and object counts, too; empty ones twice
};

// "is nested deeper than 16 levels", "has more than 2000000 values of JSON"; empty if the text is within the limits. In
// malformed text, the answer holds only up to the first error.
std::string json_excess(std::string_view text, const JsonLimits& limits);

// JSON beyond the limits. The caller adds the name of the file or the peer.
class JsonExcess : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Json: a class of nlohmann. Throws JsonExcess, and what the class throws for malformed text.
template <class Json>
Json parse_bounded(std::string_view text, const JsonLimits& limits = {}) {
  if (const std::string excess = json_excess(text, limits); !excess.empty()) throw JsonExcess(excess);
  return Json::parse(text);
}

}  // namespace trivet
