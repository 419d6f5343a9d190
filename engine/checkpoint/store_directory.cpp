#include "engine/checkpoint/store_directory.h"

#include <cerrno>

#include "core/error.h"
#include "engine/checkpoint/steps.h"

namespace trivet::checkpoint {

// Checks whether only a store names something so: another program's ".tmp-work" is not removed.
bool is_left_over(std::string_view name) {
  const auto is_of_step = [](std::string_view rest) {
    constexpr size_t kName = std::string_view("step-").size();
    return parse_step(std::string(rest.substr(0, rest.find('-', kName)))).has_value();
  };
  if (name.starts_with(kTrash)) return is_of_step(name.substr(kTrash.size()));
  if (!name.starts_with(kTemporary)) return false;
  const std::string_view rest = name.substr(kTemporary.size());
  return rest == "origin" || rest == kLatestName || rest == kBestName || rest.starts_with("mark-") || is_of_step(rest);
}

void throw_not_written(const std::string& text) { throw CheckpointError(ExitCode::CheckpointNotWritten, text); }

void StoreDirectory::require_in_place() const {
  if (!is_in_place()) throw FileError("find the directory that this run has made,", options.directory, ENOENT);
}

void StoreDirectory::remove_if_there(const std::string& name) {
  const EntryKind kind = files.kind(path(name));
  if (kind == EntryKind::Directory)
    remove_tree(files, path(name));
  else if (kind != EntryKind::Missing)
    files.remove(path(name));
}

void StoreDirectory::clear_leftovers() {
  for (const DirectoryEntry& entry : files.list(options.directory)) {
    best_effort("clearing leftovers", [&] {
      if (is_left_over(entry.name)) return remove_if_there(entry.name);
      if (!entry.name.starts_with(kDisplaced)) return;
      const std::string committed = entry.name.substr(kDisplaced.size());
      if (files.kind(path(committed)) != EntryKind::Missing) return remove_if_there(entry.name);
      files.rename(path(entry.name), path(committed));
      files.sync_directory(options.directory);
    });
  }
}

void StoreDirectory::warn(const std::string& text) {
  warnings.push_back(text);
  options.log.warning(text);
}

}  // namespace trivet::checkpoint
