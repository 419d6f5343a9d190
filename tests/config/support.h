// Helpers that the config tests share.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/config/load.h"

namespace trivet {

// The message a config is refused with; "accepted" if it is not.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(text, "bad.json", overrides);
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace trivet
