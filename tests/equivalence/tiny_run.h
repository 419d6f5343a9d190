// A whole training run in miniature, for comparing layouts: made-up text or images, a tiny model, ranks as threads.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/engine.h"
#include "model/model.h"

namespace trivet::test {

struct TinyRun {
  int ranks = 1;
  int threads = 1;                                 // per rank
  int64_t steps = 4;                               // including those of a loaded checkpoint
  std::function<void(model::Model&)> change = {};  // changes the built model
  std::vector<std::string> frozen = {};            // layers whose parameters are not trained
  std::function<void(Engine&, int world_rank, int64_t step)> before_step = {};
  // Given to the engine of each rank; null: none.
  std::function<kernels::KernelObserver*(int world_rank)> observer = {};
  // Makes the world that the rank's engine works in, from the real one; null: the engine gets the real one.
  std::function<std::unique_ptr<comm::World>(comm::World& world)> wrap = {};
  std::string load_from = {}, save_to = {};  // checkpoint directories: to resume from, and to save to at the end
  Config config;
};

struct Trace {
  std::vector<uint32_t> loss_bits;
  std::vector<double> grad_norms;
  double evaluation = 0;
  int64_t correct = 0;              // in the evaluation
  std::vector<double> rewards;      // of pairs of answers in the evaluation, preferred and rejected
  std::string predictions;          // of the evaluation, those to show, as text
  std::vector<ExpertLoad> experts;  // of the last step
  std::map<std::string, std::vector<float>> weights;
  bool operator==(const Trace&) const = default;
};
inline float loss_of(const Trace& trace, size_t step) { return std::bit_cast<float>(trace.loss_bits.at(step)); }

// 12 microbatches, a number that is divisible by 1, 2, 3, 4 and 6 ranks. Text: of one sequence of 16 tokens, or with
// Objective::Dpo of a pair of them; images: of 3 images, through every kind of layer.
Config tiny_config(model::Type type);
// The image of a sample: noise, and one bright fifth, which is its class.
std::vector<float> tiny_image(int64_t step, int64_t sample, int64_t elements);
Trace run(const TinyRun& run);

// The first difference in words, or "" when every bit is the same.
std::string difference(const Trace& a, const Trace& b);

// The same for two float32 runs of about 3 steps that are equal except for the order of sums. Loss and norm of the first step
// may differ by rounding, the last loss by what Adam makes of that (axes_test.cpp).
std::string difference_beyond_rounding(const Trace& a, const Trace& b);

}  // namespace trivet::test
