// Reads environment variables as numbers and texts. An error names the variable, its value and what is accepted. An empty
// variable counts as not set.
#pragma once

#include <cstdint>
#include <string>

#include "comm/member.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/log.h"

namespace trivet::comm {

class EnvironmentReader {
 public:
  explicit EnvironmentReader(const Environment& variables) : variables_(variables) {}
  bool has(const std::string& name) const;
  std::string text(const std::string& name) const;
  int64_t number(const std::string& name, int64_t least, int64_t most) const;
  int64_t number_or(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const;

 private:
  const Environment& variables_;
};

// {"cluster": {"chief": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}}: the chief is rank 0, and the workers
// follow.
Place place_from_tf_config(const std::string& json);

}  // namespace trivet::comm
