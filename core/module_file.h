// Modules: shared libraries that the program opens only when a config asks for what they contain, such as the CUDA backend. So
// programs that do not use them need not have the libraries that they are linked with.
//
// If the module's environment variable is set, it is the file to open. Otherwise the file is searched for in the program's
// folder, in ../lib/trivet relative to that, in lib/trivet of the prefix that Trivet was configured with (so a program that
// embeds Trivet finds the modules of its packages in /usr/lib/trivet), and where the system looks for libraries. A module is
// never closed, because what it created may live until the process ends.
//
// The program may lie where other users can write, such as /tmp. So a file in one of these three folders is opened only if it
// is a regular file, it and its folders belong to root, this user or the owner of the program, and nobody else may write to it
// or to its folder (found_file.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trivet {

struct ModuleFile {
  std::string file;      // "libtrivet_cuda.so"
  std::string variable;  // "TRIVET_CUDA_MODULE"
  std::string entry;     // the function in it that is called first
};

struct OpenedModule {
  void* entry = nullptr;  // the function; null if the file has none, or if no file could be opened
  std::string place;      // the file; empty if none could be opened
  std::string failures;   // then, the system's message about every place
};

// The folders in which an executable file looks for its modules: after it was built, and after it was installed.
std::vector<std::filesystem::path> module_folders(const std::filesystem::path& program);

// Returns why the file in one of these folders is not opened: it, or a folder of it that is not also above the program,
// is absent or could be changed by a user who cannot change the program itself. Empty: it may be opened.
std::string refusal_of_module(const std::filesystem::path& program, const std::filesystem::path& file);

OpenedModule open_module(const ModuleFile& module);

}  // namespace trivet
