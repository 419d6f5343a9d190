#include "comm/job_state.h"

namespace trivet::comm {

void JobState::accuse(Accusation accusation) noexcept {
  std::lock_guard lock(mutex_);
  if (accusation_) return;
  accusation_ = std::move(accusation);
  accused_.store(true, std::memory_order_release);
  changed_.notify_all();
  for (const auto& listener : listeners_) listener(*accusation_);
}

std::optional<Accusation> JobState::accusation() const {
  if (!accused()) return std::nullopt;
  std::lock_guard lock(mutex_);
  return accusation_;
}

bool JobState::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return accusation_.has_value(); });
}

void JobState::subscribe(std::function<void(const Accusation&)> listener) {
  std::lock_guard lock(mutex_);
  if (accusation_) listener(*accusation_);
  listeners_.push_back(std::move(listener));
}

}  // namespace trivet::comm
