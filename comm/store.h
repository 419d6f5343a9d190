// A few keys and values that every rank of a job sees. Ranks use them to agree on things before data can flow, and to meet.
//
// Rank 0 is the server: a rank's set() goes to it over the rank's liveness connection, and from there to all others. Each rank
// keeps a copy, so a wait is local. Keys are set once; ranks that set the same key must agree on its value. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace trivet::comm {

class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  // `publish` sends the others a key that this rank has set. It must not wait.
  explicit Store(std::function<void(const std::string& key, const std::string& value)> publish)
      : publish_(std::move(publish)) {}

  void set(const std::string& key, const std::string& value);
  // Returns nullopt at the deadline, or when interrupted.
  std::optional<std::string> get(const std::string& key, Milliseconds deadline);
  // Waits until all these keys are set, or until the deadline or an interruption; returns the keys that are still not set.
  std::vector<std::string> wait_for(const std::vector<std::string>& keys, Milliseconds deadline);

  // Called when a message says that another rank has set this key. Returns false if it was known. Throws CommError
  // RanksDisagree, or Rendezvous if all keys and values together are longer than kMaxBytes.
  bool apply(const std::string& key, const std::string& value);
  // Ends all current and later waits, because the job is over.
  void interrupt();

 private:
  std::vector<std::string> unset(const std::vector<std::string>& keys) const;

  std::function<void(const std::string&, const std::string&)> publish_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;  // size of all keys and values
  bool interrupted_ = false;
};

}  // namespace trivet::comm
