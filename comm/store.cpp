#include "comm/store.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trivet::comm {

void Store::set(const std::string& key, const std::string& value) {
  if (apply(key, value)) publish_(key, value);
}

bool Store::apply(const std::string& key, const std::string& value) {
  std::lock_guard lock(mutex_);
  const auto known = values_.find(key);
  if (known != values_.end() && known->second != value) {
    throw CommError(ExitCode::RanksDisagree,
                    fmt::format("store: ranks disagree on \"{}\": \"{}\" and \"{}\"", key, known->second, value));
  }
  const bool is_new = known == values_.end();
  if (is_new) {
    if (bytes_ + key.size() + value.size() > kMaxBytes)
      throw CommError(ExitCode::Rendezvous, fmt::format("sent more than {} MiB of keys for the store", kMaxBytes >> 20));
    bytes_ += key.size() + value.size();
    values_.emplace(key, value);
  }
  changed_.notify_all();
  return is_new;
}

std::optional<std::string> Store::get(const std::string& key, Milliseconds deadline) {
  if (!wait_for({key}, deadline).empty()) return std::nullopt;
  std::lock_guard lock(mutex_);
  return values_.at(key);
}

std::vector<std::string> Store::wait_for(const std::vector<std::string>& keys, Milliseconds deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, deadline, [&] { return interrupted_ || unset(keys).empty(); });
  return unset(keys);
}

std::vector<std::string> Store::unset(const std::vector<std::string>& keys) const {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) missing.push_back(key);
  }
  return missing;
}

void Store::interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  changed_.notify_all();
}

}  // namespace trivet::comm
