#include "comm/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "core/descriptor.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

constexpr size_t kShortest = 16, kLongest = Secret::kMostBytes;

// The contents of a file, in memory that is overwritten afterwards.
class Contents {
 public:
  Contents() = default;
  ~Contents() { ::sodium_memzero(bytes_.data(), bytes_.size()); }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  // All ranks inherit the same descriptor, so it is read from its beginning without moving the shared file position.
  void read(int descriptor) {
    while (size_ < bytes_.size()) {
      const ssize_t got = ::pread(descriptor, bytes_.data() + size_, bytes_.size() - size_, static_cast<off_t>(size_));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw ConfigError(fmt::format("cannot be read: {}", std::strerror(errno)));
      if (got == 0) return;
      size_ += got;
    }
  }
  std::string_view key() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, kLongest + 1> bytes_{};
  size_t size_ = 0;
};

// A pipe, a terminal or a device could keep the rank waiting forever.
struct stat status_of_regular_file(const std::string& source, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw ConfigError(fmt::format("{}: {}", source, std::strerror(errno)));
  if (!S_ISREG(status.st_mode))
    throw ConfigError(
        fmt::format("{}: is not a regular file; a secret must be a file of {} to {} bytes", source, kShortest, kLongest));
  return status;
}

Secret checked(const std::string& source, int descriptor) {
  Contents contents;
  try {
    contents.read(descriptor);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", source, error.what()));
  }
  if (contents.key().size() < kShortest || contents.key().size() > kLongest) {
    throw ConfigError(fmt::format("{}: {} bytes are not accepted as a secret; it must have {} to {}", source,
                                  contents.key().size(), kShortest, kLongest));
  }
  return Secret(contents.key());
}

}  // namespace

Secret::Secret(std::string_view key) : size_(key.size()) {
  if (key.size() > kMostBytes) throw std::logic_error("comm: a secret of more than 4096 bytes");
  std::copy(key.begin(), key.end(), bytes_.begin());
}

Secret::~Secret() { wipe(); }

Secret& Secret::operator=(const Secret& other) {
  if (this == &other) return *this;
  wipe();
  size_ = other.size_;
  std::copy(other.key().begin(), other.key().end(), bytes_.begin());
  return *this;
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  *this = static_cast<const Secret&>(other);
  other.wipe();
  return *this;
}

void Secret::wipe() {
  ::sodium_memzero(bytes_.data(), size_);
  size_ = 0;
}

Secret secret_from_descriptor(int descriptor) {
  const std::string source = fmt::format("TRIVET_SECRET_FD={}", descriptor);
  status_of_regular_file(source, descriptor);
  Secret secret = checked(source, descriptor);
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // hidden from the children of this rank
  return secret;
}

Secret secret_from_file(const std::string& path, const std::string& source, Links links) {
  // Without O_NONBLOCK, opening a pipe would wait until somebody writes to it. Whatever a link leads to, the checks below apply
  // to the file that was opened.
  const int no_links = links == Links::Refused ? O_NOFOLLOW : 0;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | no_links));
  if (!file && errno == ELOOP && links == Links::Refused)
    throw ConfigError(
        fmt::format("{}: is a symbolic link, which somebody else could point elsewhere; name the file itself", source));
  if (!file)
    throw ConfigError(
        fmt::format("{}: {}; create one with: (umask 077; head -c 32 /dev/urandom > {})", source, std::strerror(errno), path));
  const struct stat status = status_of_regular_file(source, file.number());
  if ((status.st_mode & 077) != 0 || status.st_uid != ::geteuid()) {
    throw ConfigError(
        fmt::format("{}: others may read or change it (mode {:o}, owner {}); it must be mode 600 and yours: "
                    "chmod 600 {}",
                    source, status.st_mode & 0777, status.st_uid, path));
  }
  return checked(source, file.number());
}

std::string random_bytes(size_t count) {
  std::string out(count, '\0');
  ::randombytes_buf(out.data(), out.size());
  return out;
}

std::string hexadecimal(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

}  // namespace trivet::comm
