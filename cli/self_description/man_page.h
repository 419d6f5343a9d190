// The manual as pages for man(1): trivet.1, and one page for each of its commands, such as trivet-config.1, which also
// describes the commands below that one.
#pragma once

#include <string>
#include <vector>

#include "cli/self_description/command_tree.h"

namespace trivet::cli {

struct ManPage {
  std::string file, text;  // trivet-train.1
};

std::vector<ManPage> man_pages(const Command& program, const std::string& version);

}  // namespace trivet::cli
