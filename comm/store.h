// A few keys and values that every rank of a job sees: what must be agreed on before data can flow, and where ranks meet.
//
// Rank 0 serves: a rank's set() goes to it over its liveness connection, and from it to all others. Each rank keeps a copy, so
// a wait is local. Keys are set once; ranks that set the same key must agree on its value. Any thread.
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
  static constexpr size_t kMostBytes = size_t{16} << 20;
  // `publish` carries a key that this rank has set to the others. It must not wait.
  explicit Store(std::function<void(const std::string& key, const std::string& value)> publish)
      : publish_(std::move(publish)) {}

  void set(const std::string& key, const std::string& value);
  // Nothing at the deadline, or when interrupted.
  std::optional<std::string> get(const std::string& key, Milliseconds deadline);
  // Waits until all these keys are set; returns those that are not at the deadline, or when interrupted.
  std::vector<std::string> wait_for(const std::vector<std::string>& keys, Milliseconds deadline);

  // From the connection: another rank has set this key. False when it was known. Throws CommError: RanksDisagree, or Rendezvous
  // when all keys and values together are longer than kMostBytes.
  bool apply(const std::string& key, const std::string& value);
  // Ends all waits, now and later: the job is over.
  void interrupt();

 private:
  std::vector<std::string> unset(const std::vector<std::string>& keys) const;

  std::function<void(const std::string&, const std::string&)> publish_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;  // of all keys and values
  bool interrupted_ = false;
};

}  // namespace trivet::comm
