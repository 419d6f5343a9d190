// The mistakes found in a config, in the order of the file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/config/json_node.h"

namespace trivet::config {

// "configs/gpt.json:14:9", or "--set" for what the command line gave.
std::string location(const std::string& source, Position at);

class Report {
 public:
  explicit Report(std::string source) : source_(std::move(source)) {}

  void add(Position at, const std::string& path, const std::string& what);
  size_t size() const { return found_; }
  bool full() const { return mistakes_.size() == kMostShown; }  // further mistakes are only counted
  void throw_if_any();                                          // ConfigError with one line a mistake

 private:
  static constexpr size_t kMostShown = 20;

  std::string source_;
  std::vector<std::pair<Position, std::string>> mistakes_;
  size_t found_ = 0;
};

}  // namespace trivet::config
