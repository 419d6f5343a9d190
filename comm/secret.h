// What the ranks of a job share and nobody else knows. `trivet launch` makes it and hands it over by an inherited descriptor
// (TRIVET_SECRET_FD); started by others, a file that only its owner may read (TRIVET_SECRET_FILE). Never in argv, never logged.
//
// Without either the key is empty: then only the loopback interface is served, and any process of this machine could join.
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

// Throws ConfigError: not readable, fewer than 16 bytes, or a file that others may read.
Secret secret_from_descriptor(int descriptor);
Secret secret_from_file(const std::string& path);

std::string random_bytes(size_t count);
std::string hexadecimal(std::string_view bytes);

}  // namespace trivet::comm
