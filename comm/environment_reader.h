// Reads environment variables as numbers and texts. An error names the variable, its value and what is accepted. An empty
// variable counts as not set.
#pragma once

#include <cstdint>
#include <optional>
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

// {"cluster": {"chief": [...], "worker": [...], "ps": [...]}, "task": {"type": "worker", "index": 0}}: the chief is rank 0, and
// the workers follow. Parameter servers ("ps") and the evaluator are tasks but no ranks: ConfigError.
Place place_from_tf_config(const std::string& json);
// Returns, for those two, a line that says why they have nothing to do.
std::optional<std::string> idle_task_of_tf_config(const std::string& json);

// A task of a step that srun has started. Rank 0 is on the first node of the step's list.
Place place_from_slurm(const EnvironmentReader& environment);

// Where rank 0 listens if nothing says another port.
inline constexpr int kUsualPort = 29500;

}  // namespace trivet::comm
