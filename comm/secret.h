// A secret that the ranks of a job share and nobody else knows. Every job of several processes has one:
//
//   TRIVET_SECRET_FD     an inherited descriptor; `trivet launch` creates a new secret in memory for every job
//   TRIVET_SECRET_FILE   a file that only its owner may read; for ranks that another program starts, on any network address
//   otherwise            on the loopback interface: this user's own file (user_secret.h), created by whichever rank comes first
//
// The secret is never in argv or in the environment, and never logged.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace trivet::comm {

// Keeps its bytes in itself, and overwrites them when it is destroyed or moved from, so that none are left in memory that is
// used for something else later. Copies do the same.
class Secret {
 public:
  static constexpr size_t kMostBytes = 4096;

  Secret() = default;
  // Copies the key. Throws std::logic_error if it is longer than kMostBytes.
  explicit Secret(std::string_view key);
  Secret(const Secret& other) : Secret(other.key()) {}
  Secret(Secret&& other) noexcept : Secret(other.key()) { other.wipe(); }
  Secret& operator=(const Secret& other);
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();

  // Valid as long as this object, and until it is assigned to or moved from.
  std::string_view key() const { return {bytes_.data(), size_}; }
  bool empty() const { return size_ == 0; }

 private:
  void wipe();

  std::array<char, kMostBytes> bytes_{};
  size_t size_ = 0;
};

// Throws ConfigError if it is not a regular file, is not readable, or has fewer than 16 or more than 4096 bytes.
Secret secret_from_descriptor(int descriptor);

// Links are followed where the user names the file, because Kubernetes mounts secrets as links. They are refused in a directory
// that others could have created first, as under /tmp.
enum class Links { Followed, Refused };

// Reads a secret. Refuses, too, a file of another user, one that others may read or write, and with Links::Refused a
// symbolic link. `source` names the file in errors.
Secret secret_from_file(const std::string& path, const std::string& source, Links links = Links::Followed);

std::string random_bytes(size_t count);
std::string hexadecimal(std::string_view bytes);

}  // namespace trivet::comm
