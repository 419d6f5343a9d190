#include "data/admitted_order.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <stdexcept>
#include <tuple>

#include "core/random.h"

namespace trivet::data {

// The turn of a sample: samples come in the order of their numbers `at`.
struct AdmittedOrder::Turn {
  uint64_t at;
  int64_t sample;
  bool operator>(const Turn& other) const { return std::tie(at, sample) > std::tie(other.at, other.sample); }
};

AdmittedOrder::AdmittedOrder(std::vector<int64_t> samples, std::vector<Stage> stages, uint64_t seed, bool shuffle)
    : samples_(std::move(samples)),
      stages_(std::move(stages)),
      order_(std::max<int64_t>(1, stages_.empty() ? 1 : stages_.back().admitted), seed, shuffle),
      key_(random_key(seed, "order of admitted samples")),
      shuffle_(shuffle) {
  const bool is_complete = !stages_.empty() && stages_.front().first_place == 0 && stages_.front().admitted > 0 &&
                           stages_.back().admitted == static_cast<int64_t>(samples_.size());
  if (!shuffle_) {
    in_order_ = samples_;
    std::ranges::sort(in_order_);
  }
  if (!is_complete) throw std::logic_error("admitted order: stages do not begin with a sample and end with all of them");
}

AdmittedOrder::Turn AdmittedOrder::turn_of(int64_t round, int64_t sample) const {
  if (!shuffle_) return {0, sample};
  const PhiloxBlock random = philox(key_, static_cast<uint64_t>(sample), static_cast<uint64_t>(round));
  return {random[0] | uint64_t{random[1]} << 32, sample};
}

AdmittedOrder::Round AdmittedOrder::make_round(int64_t number, int64_t first_place) const {
  auto stage = std::prev(std::ranges::upper_bound(stages_, first_place, {}, &Stage::first_place));
  std::vector<Turn> turns;
  for (int64_t i = 0; i < stage->admitted; ++i) turns.push_back(turn_of(number, samples_[i]));
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> coming(std::greater<>{}, std::move(turns));
  Round round{.number = number, .first_place = first_place, .samples = {}};
  for (Turn last{}; !coming.empty(); coming.pop()) {
    last = coming.top();
    round.samples.push_back(last.sample);
    for (; std::next(stage) != stages_.end() && std::next(stage)->first_place == round.end(); ++stage)
      for (int64_t i = stage->admitted; i < std::next(stage)->admitted; ++i)
        if (const Turn turn = turn_of(number, samples_[i]); turn > last) coming.push(turn);
  }
  return round;
}

// Makes round_ the one that has this place, unless the rounds before the last stage end earlier.
void AdmittedOrder::go_to(int64_t place) const {
  if (place >= first_places_.back()) {
    while (place >= first_places_.back() && !is_last_stage(first_places_.back())) {
      round_ = make_round(static_cast<int64_t>(first_places_.size()) - 1, first_places_.back());
      first_places_.push_back(round_.end());
    }
  } else if (place < round_.first_place || place >= round_.end()) {
    const auto first = std::prev(std::ranges::upper_bound(first_places_, place));
    round_ = make_round(first - first_places_.begin(), *first);
  }
}

AdmittedOrder::Choice AdmittedOrder::at(int64_t place) const {
  if (place < 0) throw std::logic_error("admitted order: negative place");
  const std::scoped_lock lock(mutex_);
  go_to(place);
  if (place < first_places_.back()) return {round_.samples[place - round_.first_place], round_.number};
  const int64_t number = place - first_places_.back(), size = order_.samples();
  const int64_t round = static_cast<int64_t>(first_places_.size()) - 1 + number / size;
  return {(shuffle_ ? samples_ : in_order_)[order_.sample_at(round, number % size)], round};
}

}  // namespace trivet::data
