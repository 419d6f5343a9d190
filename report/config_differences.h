// Lists where the configs of several runs differ.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trivet::report {

// One row for each key whose value is not the same in all configs (JSON objects as `trivet config explain --json` prints them;
// a text that is no such object counts as a config without keys): the key, then its value in each config, empty where it is
// missing. Keys in alphabetical order, "zero_optimization.stage".
std::vector<std::vector<std::string>> config_differences(std::span<const std::string> configs);

}  // namespace trivet::report
