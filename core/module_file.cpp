#include "core/module_file.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "core/found_file.h"

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
  std::vector<std::filesystem::path> folders;
  if (!no_such_link) folders = module_folders(program);
  folders.emplace_back(TRIVET_INSTALLED_MODULES);
  for (const auto& folder : folders) {
    const auto file = folder / module.file;
    places.push_back({file.string(), refusal_of_module(program, file)});
  }
  places.push_back({module.file, ""});
  return places;
}

std::string cannot_be_opened(const std::filesystem::path& file) {
  return fmt::format("{}: cannot open shared object file: {}", file.string(), std::strerror(errno));
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
  const uid_t owner_of_program = ::stat(program.c_str(), &of_program) == 0 ? of_program.st_uid : 0;
  struct stat status {};
  for (std::filesystem::path part = file; !is_above(part, program); part = part.parent_path()) {
    if (::lstat(part.c_str(), &status) != 0) return cannot_be_opened(file);
    // Whoever may write to a folder further up can only put a folder of their own in the place of this one.
    if (part != file && part != file.parent_path()) status.st_mode &= ~static_cast<mode_t>(022);
    if (const std::string why = why_others_may_change(status, owner_of_program); !why.empty())
      return fmt::format("{}: is not opened, because {} {}", file.string(), part.string(), why);
  }
  std::error_code unreadable;
  const auto real = std::filesystem::canonical(file, unreadable);  // where a link leads to
  if (unreadable || ::lstat(real.parent_path().c_str(), &status) != 0) return cannot_be_opened(file);
  if (const std::string why = is_above(real.parent_path(), program) ? "" : why_others_may_change(status, owner_of_program);
      !why.empty())
    return fmt::format("{}: is not opened, because it is in {}, which {}", file.string(), real.parent_path().string(), why);
  if (::stat(file.c_str(), &status) != 0) return cannot_be_opened(file);
  const std::string why = S_ISREG(status.st_mode) ? why_others_may_change(status, owner_of_program) : "is not a regular file";
  return why.empty() ? "" : fmt::format("{}: is not opened, because it {}", file.string(), why);
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
