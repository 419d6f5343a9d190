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

bool JobState::wait_for_accusation(std::chrono::milliseconds grace) const {
  using std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kSlice{20};
  const auto until = steady_clock::now() + grace;
  bool accused = wait_for(grace);
  const auto is_cut_off = [&] {
    return heard_rank_zero_.load() != steady_clock::time_point{} && heard_rank_zero_.load() < until;
  };
  while (!accused && is_cut_off()) accused = wait_for(kSlice);
  return accused;
}

void JobState::heard_rank_zero(std::chrono::steady_clock::time_point when) noexcept { heard_rank_zero_ = when; }

void JobState::subscribe(std::function<void(const Accusation&)> listener) {
  std::lock_guard lock(mutex_);
  if (accusation_) listener(*accusation_);
  listeners_.push_back(std::move(listener));
}

}  // namespace trivet::comm
