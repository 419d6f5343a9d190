// Lists of files in an environment variable: what a launcher tells the ranks that it reads and writes, so that none of their
// outputs replaces it (core/output_guard.h). Names and absolute paths follow each other, separated by "//", which no such path
// contains:
//
//   TRIVET_LAUNCHER_INPUTS="--hostfile//home/me/hosts//the program//home/me/run.sh"
//
// A variable that is not of this form names no file. Nothing is read from these files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trivet {

inline constexpr const char* kLauncherInputs = "TRIVET_LAUNCHER_INPUTS";
inline constexpr const char* kLauncherOutputs = "TRIVET_LAUNCHER_OUTPUTS";

struct NamedFile {
  std::string name;  // in messages: "--hostfile"
  std::string path;
};

// Paths become absolute, as seen from this directory.
std::string list_of_named_files(const std::vector<NamedFile>& files);
std::vector<NamedFile> named_files(std::string_view list);

}  // namespace trivet
