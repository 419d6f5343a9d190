#include "core/module_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <system_error>

namespace trivet {
namespace {

std::vector<std::string> places(const ModuleFile& module) {
  if (const char* chosen = std::getenv(module.variable.c_str())) return {chosen};
  std::vector<std::string> places;
  std::error_code no_such_link;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", no_such_link);
  if (!no_such_link)
    for (const auto& folder : module_folders(program)) places.push_back((folder / module.file).string());
  places.push_back(std::string(TRIVET_INSTALLED_MODULES) + "/" + module.file);
  places.push_back(module.file);
  return places;
}

}  // namespace

std::vector<std::filesystem::path> module_folders(const std::filesystem::path& program) {
  const auto folder = program.parent_path();
  return {folder, folder.parent_path() / "lib" / "trivet"};
}

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
