// Runs the built program `trivet` and captures what it prints.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace trivet::test {

struct Output {
  int code = 0;
  std::string text, errors;
};

// A temporary folder that is removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "trivet-cli-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string at(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }
  std::string read(const std::string& name) const {
    std::ifstream file(at(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Runs trivet ARGUMENTS in this folder with one kernel thread. Output has what it prints only if that goes to "out".
  Output run(const std::string& arguments, const std::string& standard_output = "out") const {
    return run_in("", arguments, standard_output);
  }
  // Does the same, but starts the program with `wrapper`.
  Output run_in(const std::string& wrapper, const std::string& arguments, const std::string& standard_output = "out") const {
    const std::string command = "cd '" + path_.string() + "' && OMP_NUM_THREADS=1 " + wrapper +
                                " " TRIVET_BINARY_DIR "/trivet " + arguments + " > " + standard_output + " 2> err < /dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read("out"), read("err")};
  }

 private:
  std::filesystem::path path_;
};

}  // namespace trivet::test
