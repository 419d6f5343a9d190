// A secret that the ranks of a job share and nobody else knows. Every job of several processes has one:
//
//   TRIVET_SECRET_FD     an inherited descriptor; `trivet launch` creates a new secret in memory for every job
//   TRIVET_SECRET_FILE   a file that only its owner may read; for ranks that another program starts, on any network address
//   otherwise            on the loopback interface: this user's own file (user_secret.h), created by whichever rank comes first
//
// The secret is never in argv or in the environment, and never logged.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace trivet::comm {

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string key) : key_(std::move(key)) {}
  const std::string& key() const { return key_; }
  bool empty() const { return key_.empty(); }

 private:
  std::string key_;
};

// Throws ConfigError if it is not a regular file, is not readable, or has fewer than 16 or more than 4096 bytes.
Secret secret_from_descriptor(int descriptor);

// Links are followed where the user names the file, because Kubernetes mounts secrets as links. They are refused in a directory
// that others could have created first, as under /tmp.
enum class Links { Followed, Refused };

// Also refuses a file of another user, one that others may read or write, and with Links::Refused a symbolic link. `source`
// names the file in errors.
Secret secret_from_file(const std::string& path, const std::string& source, Links links = Links::Followed);

std::string random_bytes(size_t count);
std::string hexadecimal(std::string_view bytes);

}  // namespace trivet::comm
