#include "core/bounded_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/descriptor.h"
#include "core/open_files.h"

namespace trivet {
namespace {

std::string cannot_be_read() { return std::string("cannot be read: ") + std::strerror(errno); }

}  // namespace

BoundedText read_bounded(const std::string& path, int64_t limit_bytes, std::string_view kind) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) check_open_files(path, errno);
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) return {"", cannot_be_read()};
  if (S_ISDIR(status.st_mode)) return {"", "is a folder; name a file"};
  if (status.st_size > limit_bytes)
    return {"", fmt::format("has {} bytes; {} may have at most {}", status.st_size, kind, limit_bytes)};
  std::string text;
  constexpr size_t kPiece = size_t{1} << 16;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const ssize_t got = ::read(file.number(), text.data() + before, kPiece);
    text.resize(before + (got > 0 ? got : 0));
    if (got < 0 && errno != EINTR) return {"", cannot_be_read()};
    if (static_cast<int64_t>(text.size()) > limit_bytes)
      return {"", fmt::format("is longer than {} bytes, the most that {} may have", limit_bytes, kind)};
    if (got == 0) return {std::move(text), ""};
  }
}

}  // namespace trivet
