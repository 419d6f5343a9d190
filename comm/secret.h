// What the ranks of a job share and nobody else knows. No job of several processes runs without one:
//
//   TRIVET_SECRET_FD     an inherited descriptor; `trivet launch` makes a new secret in memory for every job
//   TRIVET_SECRET_FILE   a file that only its owner may read: ranks that something else starts, and any address of a network
//   otherwise            on the loopback interface: this user's own file (user_secret.h), made by whichever rank comes first
//
// Never in argv or in the environment, never logged.
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

// Throws ConfigError: not a regular file, not readable, fewer than 16 or more than 4096 bytes.
Secret secret_from_descriptor(int descriptor);

// Followed where the user names the file, because Kubernetes mounts secrets as links. Refused in a directory that others could
// have made before, as under /tmp.
enum class Links { Followed, Refused };

// Also refuses a file of another user, one that others may read or write, and with Links::Refused a symbolic link. `source` is
// how errors name it.
Secret secret_from_file(const std::string& path, const std::string& source, Links links = Links::Followed);

std::string random_bytes(size_t count);
std::string hexadecimal(std::string_view bytes);

}  // namespace trivet::comm
