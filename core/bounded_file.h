// Reads small files into memory. Each kind of file has its own size limit, so that a wrong file name (a disk image, /dev/zero)
// leads to an error message instead of using up the machine's memory. Nor does a reader wait for ever: a FIFO that nobody
// writes to, or a pipe or terminal from which nothing comes, is a problem with a message, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace trivet {

struct BoundedText {
  std::string text;
  std::string problem;  // "has 20000000 bytes; a config may have at most 1048576"; empty on success
};

// The longest time that a pipe may stay silent.
inline constexpr std::chrono::seconds kSilenceOfAPipe{30};

// Reads a file or a pipe up to its end. Throws Error if this process can open no more files (core/open_files.h). `kind` says in
// the message what the limit applies to, for example "a config".
BoundedText read_bounded(const std::string& path, int64_t limit_bytes, std::string_view kind);
BoundedText read_bounded(const std::string& path, int64_t limit_bytes, std::string_view kind,
                         std::chrono::milliseconds silence);

}  // namespace trivet
