#include "data/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/open_files.h"
#include "data/data_error.h"
#include "data/hash.h"

namespace trivet::data {
namespace {

int open_regular(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe that nobody writes to would block. The flag has no effect on a regular file.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) check_open_files(path, errno);
  if (descriptor < 0 && errno == ENOENT) refuse_missing(path);
  if (descriptor < 0) bad_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  return descriptor;
}

}  // namespace

DataFile::DataFile(const std::string& path) : path_(path), descriptor_(open_regular(path)) {
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  std::string problem;
  if (!known) problem = std::string("cannot be examined: ") + std::strerror(errno);
  if (known && !S_ISREG(status.st_mode))
    problem = S_ISDIR(status.st_mode) ? "is a directory; name a file" : "is a pipe or a device; name a file";
  if (problem.empty() && status.st_size == 0) problem = "is empty";
  if (!problem.empty()) {
    ::close(descriptor_);
    bad_file(path, problem);
  }
  bytes_ = status.st_size;
}

DataFile::~DataFile() { ::close(descriptor_); }

void DataFile::check_size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) bad_file(path_, std::string("cannot be examined: ") + std::strerror(errno));
  if (status.st_size != bytes_)
    data_changed(path_,
                 fmt::format("has {} bytes, but had {} when it was opened; put the file back as it was and continue from "
                             "the last checkpoint",
                             status.st_size, bytes_));
}

void DataFile::read(int64_t offset, std::span<std::byte> out) const {
  if (offset < 0 || offset > bytes_ || static_cast<int64_t>(out.size()) > bytes_ - offset)
    throw std::logic_error(fmt::format("{}: bytes {} + {} of {} were requested", path_, offset, out.size(), bytes_));
  check_size();
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) bad_file(path_, fmt::format("cannot be read at byte {}: {}", offset, std::strerror(errno)));
    if (got == 0) {
      check_size();  // truncated since the first check
      data_changed(path_, fmt::format("ends before byte {}, but had {} bytes when it was opened", offset, bytes_));
    }
    out = out.subspan(got);
    offset += got;
  }
}

std::string DataFile::text(int64_t offset, int64_t bytes) const {
  std::string text(std::clamp<int64_t>(bytes_ - offset, 0, bytes), '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

uint64_t DataFile::hash(int64_t offset, int64_t bytes) const {
  constexpr int64_t kPiece = int64_t{1} << 20;
  StreamingHash hash;
  for (int64_t done = 0; done < bytes; done += kPiece) hash.add(text(offset + done, std::min(kPiece, bytes - done)));
  return hash.value();
}

}  // namespace trivet::data
