#include "core/bounded_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/descriptor.h"
#include "core/open_files.h"

namespace trivet {
namespace {

constexpr std::chrono::seconds kWaitForAWriter{2};  // for a writer that is just starting

std::string cannot_be_read() { return std::string("cannot be read: ") + std::strerror(errno); }

// Returns the encoding by the mark at the beginning; empty: none that is known.
std::string_view other_encoding_of(std::string_view text) {
  constexpr std::string_view kLittle32("\xFF\xFE\0\0", 4), kBig32("\0\0\xFE\xFF", 4);
  if (text.starts_with(kLittle32) || text.starts_with(kBig32)) return "UTF-32";
  return text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") ? "UTF-16" : "";
}

// Checks whether something can be read, or the end was reached. A signal may make the wait a little longer.
bool wait_for_input(const Descriptor& file, std::chrono::milliseconds silence) {
  pollfd input{.fd = file.number(), .events = POLLIN, .revents = 0};
  int ready = -1;
  do ready = ::poll(&input, 1, static_cast<int>(silence.count()));
  while (ready < 0 && errno == EINTR);
  return ready != 0;
}

}  // namespace

BoundedText read_bounded(const std::string& path, int64_t limit_bytes, std::string_view kind) {
  return read_bounded(path, limit_bytes, kind, kSilenceOfAPipe);
}

BoundedText read_bounded(const std::string& path, int64_t limit_bytes, std::string_view kind,
                         std::chrono::milliseconds silence) {
  // Opening a FIFO does not wait for a writer then. `<(command)` has one from the beginning.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) check_open_files(path, errno);
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) return {"", cannot_be_read()};
  if (S_ISDIR(status.st_mode)) return {"", "is a folder; name a file"};
  if (S_ISBLK(status.st_mode)) return {"", "is a device; name a file"};
  if (status.st_size > limit_bytes)
    return {"", fmt::format("has {} bytes; {} may have at most {}", status.st_size, kind, limit_bytes)};
  std::string text;
  bool waited_for_a_writer = false;
  constexpr size_t kPiece = size_t{1} << 16;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const ssize_t got = ::read(file.number(), text.data() + before, kPiece);
    text.resize(before + (got > 0 ? got : 0));
    if (got < 0 && errno == EAGAIN) {
      if (wait_for_input(file, silence)) continue;
      return {"", fmt::format("is a pipe or a device from which nothing has come for {} s",
                              std::chrono::duration<double>(silence).count())};
    }
    if (got < 0 && errno != EINTR) return {"", cannot_be_read()};
    if (static_cast<int64_t>(text.size()) > limit_bytes)
      return {"", fmt::format("is longer than {} bytes, the most that {} may have", limit_bytes, kind)};
    if (got == 0 && text.empty() && S_ISFIFO(status.st_mode) && !waited_for_a_writer) {
      waited_for_a_writer = true;
      wait_for_input(file, std::min<std::chrono::milliseconds>(silence, kWaitForAWriter));
      continue;
    }
    if (got == 0 && text.empty() && S_ISFIFO(status.st_mode))
      return {"", "is a FIFO or a pipe that nobody has written to; start its writer first"};
    if (got > 0) continue;
    if (const std::string_view encoding = other_encoding_of(text); !encoding.empty())
      return {"", fmt::format("is in {0}; save it as UTF-8 (iconv -f {0} -t UTF-8)", encoding)};
    return {std::move(text), ""};
  }
}

}  // namespace trivet
