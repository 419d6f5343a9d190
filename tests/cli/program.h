// Runs the built program `trivet` and captures what it prints.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace trivet::test {

struct Output {
  int code = 0;
  std::string text, errors;
};

// A folder in which the program runs.
class Folder : public TemporaryFolder {
 public:
  // Runs trivet ARGUMENTS in this folder with one kernel thread. Output has what it prints only if that goes to "out".
  Output run(const std::string& arguments, const std::string& standard_output = "out") const {
    return run_in("", arguments, standard_output);
  }
  // Does the same, but starts the program with `wrapper`.
  Output run_in(const std::string& wrapper, const std::string& arguments, const std::string& standard_output = "out") const {
    const std::string command = "cd '" + path() + "' && OMP_NUM_THREADS=1 " + wrapper + " " TRIVET_BINARY_DIR "/trivet " +
                                arguments + " > " + standard_output + " 2> err < /dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read("out"), read("err")};
  }
};

}  // namespace trivet::test
