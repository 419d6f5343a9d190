#include "core/replace_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace trivet {

void replace_file(FileSystem& files, const std::string& path, std::string_view text) {
  if (files.kind(path) == EntryKind::Directory) throw FileError("write", path, EISDIR);
  std::string unfinished = path + ".tmp";
  if (files.kind(unfinished) != EntryKind::Missing) unfinished = fmt::format("{}.{}.tmp", path, ::getpid());
  try {
    write_text(files, unfinished, text);
    files.rename(unfinished, path);
  } catch (const FileError&) {
    if (files.kind(unfinished) == EntryKind::File) files.remove(unfinished);
    throw;
  }
}

}  // namespace trivet
