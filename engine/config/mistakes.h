// The mistakes found in a config. The first ones are shown, in the order of the file; the rest are only counted.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engine/config/json_node.h"

namespace trivet {
struct Config;
}

namespace trivet::config {

// "configs/gpt.json:14:9", "--set" for a value from the command line, or "configs/gpt.json" for one of the weights.
std::string location(const std::string& source, Position at);

class Mistakes {
 public:
  explicit Mistakes(std::string source) : source_(std::move(source)) {}

  void add(Position at, const std::string& path, const std::string& what);
  // Adds a whole line.
  void add(Position at, const std::string& line);
  size_t size() const { return found_; }
  // Checks whether a mistake here would be shown, going by those found so far. Later finds may still displace it.
  bool shows(Position at) const;
  void throw_if_any();  // a ConfigError with one line per mistake

 private:
  static constexpr size_t kMaxShown = 20;

  void insert(Position at, const std::string& line);

  std::string source_;
  std::vector<std::pair<Position, std::string>> mistakes_;  // the ones shown, by position
  size_t found_ = 0;
};

// Keys that contradict each other. It knows its place, so that it can be one of several mistakes.
class Contradiction : public ConfigError {
 public:
  Contradiction(Position at, const std::string& message) : ConfigError(message), at_(at) {}
  Position at() const { return at_; }

 private:
  Position at_;
};

// The place of a mistake that no position in the file shows: after all others.
inline constexpr Position kNowhere{1 << 30, 0};
// The place of a key that neither the file nor --set has, but the weights that the run begins with.
inline constexpr Position kOfWeights{-1, 0};

// Runs one step of reading or checking a config, and adds the contradiction that it throws.
void add_contradiction_of(const std::function<void(Config&)>& step, Config& config,
                          const std::vector<std::string>& unknown_values, Mistakes& mistakes);

// Adds the contradictions of a config, except those that mention one of the given paths, whose values are not known.
void add_contradictions(Config& config, const std::vector<std::string>& unknown_values, Mistakes& mistakes);

}  // namespace trivet::config
