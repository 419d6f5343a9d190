// Files that the program looks for by itself, without anybody having named them: .deepspeed_env, /job/hostfile, NCCL's files,
// modules. Whoever can put such a file in its place can have the program do what they want. So it is used only if nobody but
// this user and root could have put it there or changed it:
//
//   * It is a regular file that belongs to this user or root, nobody else may write to it, and it is not too large.
//   * Its directory belongs to this user or root, and nobody else may write there, or the directory has the sticky bit. (Then
//     others may give the user's own files further names there, so the file must have one name only.)
//   * If the name is a link, the link belongs to this user or root, and the rules hold for what it leads to, too.
//
// The rules are applied to the open file that is then read, so that it cannot be exchanged in between, and nothing waits: a
// pipe is refused like a device.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace trivet {

inline constexpr int64_t kMostBytesOfAFoundFile = int64_t{1} << 20;

struct FoundFile {
  Descriptor file;      // open for reading; none if there is no such file, or if it is refused
  std::string refusal;  // "belongs to user 65534"; empty: it may be used, or there is none
};

// A file that cannot be seen, because a directory above it may not be searched, counts as one that is not there. A link that
// leads to nothing is refused: whoever made it wants a file to be used.
FoundFile open_found_file(const std::string& path, int64_t most_bytes = kMostBytesOfAFoundFile);

struct FoundText {
  bool exists = false;
  std::string text;
};

// Throws ConfigError with the path, the reason and `advice` ("set DS_ENV_FILE") if the file may not be used or not be read.
// `named_by`: the variable that names the file, so that a message does not call it one that nobody has named.
FoundText read_found_file(const std::string& path, std::string_view advice, std::string_view named_by = {});

// Why somebody else than this user, root and `trusted` could change this file or directory, or point this link elsewhere:
// "belongs to user 65534", "has mode 666, so that others may write to it". Empty: nobody could.
std::string why_others_may_change(const struct stat& status, uid_t trusted = 0);

}  // namespace trivet
