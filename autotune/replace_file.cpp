#include "autotune/replace_file.h"

#include <cerrno>

namespace trivet::autotune {

void replace_file(FileSystem& files, const std::string& path, std::string_view text) {
  if (files.kind(path) == EntryKind::Directory) throw FileError("write", path, EISDIR);
  const std::string unfinished = path + ".tmp";
  write_text(files, unfinished, text);
  files.rename(unfinished, path);
}

}  // namespace trivet::autotune
