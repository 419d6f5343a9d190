#include "core/module_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

namespace trivet {
namespace {

std::vector<std::string> places(const ModuleFile& module) {
  if (const char* chosen = std::getenv(module.variable.c_str())) return {chosen};
  std::vector<std::string> places;
  std::error_code no_such_link;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", no_such_link);
  if (!no_such_link)
    for (const auto& folder : {program.parent_path(), program.parent_path().parent_path() / "lib"})
      places.push_back((folder / module.file).string());
  places.push_back(module.file);
  return places;
}

}  // namespace

OpenedModule open_module(const ModuleFile& module) {
  OpenedModule opened;
  for (const std::string& place : places(module)) {
    if (void* handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL))
      return {.entry = ::dlsym(handle, module.entry.c_str()), .place = place, .failures = {}};
    opened.failures += (opened.failures.empty() ? "" : "; ") + std::string(::dlerror());
  }
  return opened;
}

}  // namespace trivet
