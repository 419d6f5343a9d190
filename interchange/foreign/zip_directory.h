// The directory of a zip archive as torch.save writes it: entries are stored as they are (not compressed), so that each is a
// range of bytes of the file, and there may be more than 4 GiB of them.
//
// Nothing of an entry's content is read. Names are only labels: no file is ever made of them. Errors are CheckpointErrors that
// name the file: CheckpointCorrupt for an archive that contradicts itself, Usage for features that torch.save does not use.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/file_system.h"

namespace trivet::foreign {

// The most bytes of a directory: about a million entries.
inline constexpr int64_t kZipDirectoryLimitBytes = int64_t{64} << 20;

struct ZipEntry {
  int64_t offset = 0, bytes = 0;  // the content's place in the file
  uint32_t crc32 = 0;
};

// Checks whether the file begins as a zip archive does.
bool is_zip(const ReadableFile& file);

// Returns the entries by name. Their contents lie in the file and do not overlap.
std::map<std::string, ZipEntry> read_zip_directory(const ReadableFile& file);

}  // namespace trivet::foreign
