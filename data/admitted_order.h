// Orders the samples that a curriculum has admitted so far (trainer/admission.h), as a run reads them.
//
// The run goes through the samples in rounds. Each round has a shuffled order of all samples of its own and reads, from its
// beginning to its end, those that are admitted when their turn comes; the next place then begins the next round. A sample that
// is admitted during a round is read in it if its turn is still to come.
//
//   order of a round     d  a  f  c  b  e       a b c are admitted at first, d and e after two places, f never
//   reads                   a     c  b  e       the turn of d was before it was admitted
//
// So no sample is read twice in a round, a round leaves out only samples whose turn came before their admission, and all
// admitted samples are about equally likely to come next. The sample at a place is a function of the seed, the
// admissions and the place.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "data/sample_order.h"

namespace trivet::data {

// Any thread may call it at any time.
class AdmittedOrder {
 public:
  // A place of the run, and how many samples are admitted from there on.
  struct Stage {
    int64_t first_place = 0, admitted = 0;
  };
  struct Choice {
    int64_t sample = 0, round = 0;
  };

  // `samples` in the order of their admission. `stages` in ascending order of both numbers; the first begins at place 0 and has
  // a sample. Without a shuffle, the order of a round is that of the samples' numbers.
  AdmittedOrder(std::vector<int64_t> samples, std::vector<Stage> stages, uint64_t seed, bool shuffle);

  // Rounds that begin before the last stage are worked out one after another, each as a whole, when a place in them or after
  // them is first asked for, in O(log samples) for each of their places; then only the round that was asked for last is in
  // memory.
  Choice at(int64_t place) const;

 private:
  struct Turn;
  struct Round {
    int64_t number = -1, first_place = 0;
    std::vector<int64_t> samples;
    int64_t end() const { return first_place + static_cast<int64_t>(samples.size()); }
  };
  Turn turn_of(int64_t round, int64_t sample) const;
  Round make_round(int64_t number, int64_t first_place) const;
  bool is_last_stage(int64_t place) const { return place >= stages_.back().first_place; }
  void go_to(int64_t place) const;

  std::vector<int64_t> samples_;
  std::vector<int64_t> in_order_;  // the same samples by their numbers, unless they are shuffled anyway
  std::vector<Stage> stages_;
  SampleOrder order_;  // order in rounds that begin in the last stage
  uint64_t key_;
  bool shuffle_;

  mutable std::mutex mutex_;
  mutable std::vector<int64_t> first_places_{0};  // for the rounds up to the last one worked out, and the next one
  mutable Round round_;                           // the one that was asked for last
};

}  // namespace trivet::data
