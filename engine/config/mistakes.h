// The mistakes found in a config. The first ones are shown, in the order of the file; the rest are only counted.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/config/json_node.h"

namespace trivet::config {

// "configs/gpt.json:14:9", or "--set" for a value from the command line.
std::string location(const std::string& source, Position at);

class Mistakes {
 public:
  explicit Mistakes(std::string source) : source_(std::move(source)) {}

  void add(Position at, const std::string& path, const std::string& what);
  size_t size() const { return found_; }
  // Whether a mistake at this position would be shown, going by the mistakes found so far. Later finds may still displace it.
  bool shows(Position at) const;
  void throw_if_any();  // a ConfigError with one line per mistake

 private:
  static constexpr size_t kMaxShown = 20;

  std::string source_;
  std::vector<std::pair<Position, std::string>> mistakes_;  // the ones shown, by position
  size_t found_ = 0;
};

}  // namespace trivet::config
