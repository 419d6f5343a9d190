#include "core/module_file.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace trivet {
namespace {

struct Place {
  std::string file;
  std::string refusal;  // why it is not opened; empty: it is
};

std::vector<Place> places(const ModuleFile& module) {
  if (const char* chosen = std::getenv(module.variable.c_str())) return {{chosen, ""}};
  std::vector<Place> places;
  std::error_code no_such_link;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", no_such_link);
  if (!no_such_link)
    for (const auto& folder : module_folders(program)) {
      const auto file = folder / module.file;
      places.push_back({file.string(), refusal_of_module(program, file)});
    }
  places.push_back({std::string(TRIVET_INSTALLED_MODULES) + "/" + module.file, ""});
  places.push_back({module.file, ""});
  return places;
}

bool is_above(const std::filesystem::path& folder, const std::filesystem::path& program) {
  return std::mismatch(folder.begin(), folder.end(), program.begin(), program.end()).first == folder.end();
}

}  // namespace

std::vector<std::filesystem::path> module_folders(const std::filesystem::path& program) {
  const auto folder = program.parent_path();
  return {folder, folder.parent_path() / "lib" / "trivet"};
}

std::string refusal_of_module(const std::filesystem::path& program, const std::filesystem::path& file) {
  struct stat of_program {};
  const bool known = ::stat(program.c_str(), &of_program) == 0;
  for (std::filesystem::path part = file; !is_above(part, program); part = part.parent_path()) {
    struct stat status {};
    if (::lstat(part.c_str(), &status) != 0)
      return fmt::format("{}: cannot open shared object file: {}", file.string(), std::strerror(errno));
    const uid_t owner = status.st_uid;
    if (owner != 0 && owner != ::geteuid() && !(known && owner == of_program.st_uid))
      return fmt::format("{}: is not opened, because {} belongs to another user (uid {})", file.string(), part.string(), owner);
  }
  return "";
}

OpenedModule open_module(const ModuleFile& module) {
  OpenedModule opened;
  for (const Place& place : places(module)) {
    std::string failure = place.refusal;
    if (failure.empty()) {
      if (void* handle = ::dlopen(place.file.c_str(), RTLD_NOW | RTLD_LOCAL))
        return {.entry = ::dlsym(handle, module.entry.c_str()), .place = place.file, .failures = {}};
      failure = ::dlerror();
    }
    opened.failures += (opened.failures.empty() ? "" : "; ") + failure;
  }
  return opened;
}

}  // namespace trivet
