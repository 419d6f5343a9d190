// Generates text from a model that was saved, one token at a time, in one process. Holds float32 weights and no training state.
//
// The whole text is computed again for each token (there is no key/value cache), which is simple, exact and fast enough for
// trying out a model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "data/tokenizer.h"
#include "engine/backend/backend.h"
#include "model/model.h"
#include "zero/parameters.h"

namespace trivet {

namespace checkpoint {
class LoadedStep;
class TensorSource;
}  // namespace checkpoint

// The tokenizer that the step was trained with; null if it has none. Throws CheckpointError (CheckpointCorrupt) if the
// checkpoint holds something else in its place.
std::shared_ptr<data::Tokenizer> tokenizer_of(const checkpoint::LoadedStep& step);

class Generator {
 public:
  // Reads the model's weights. `room`: how many tokens a text has at most, which decides the memory; 0, or more than the
  // model's sequence_length, is that. Throws CheckpointError when names or shapes differ, ConfigError when the last layer does
  // not give logits, and the errors of make_backend for the device.
  Generator(model::Model model, const checkpoint::TensorSource& weights, Device device, int threads, int64_t room = 0);

  // Returns the logits [vocabulary] of the token after `tokens`, of which only the last that there is room for are used. There
  // must be at least one token. Throws DataError for a token that is not in the vocabulary.
  std::vector<float> next_logits(std::span<const int32_t> tokens);

 private:
  std::unique_ptr<zero::Parameters> make_parameters(kernels::Kernels& kernels, Allocator& allocator, MemoryMeter& meter);
  void load(const checkpoint::TensorSource& weights);
  void forward(kernels::Kernels& kernels, zero::Parameters& parameters, Arena& arena, ConstTensorView tokens,
               TensorView logits);

  model::Model model_;
  int64_t room_;
  std::vector<std::vector<ParameterSpec>> frozen_;  // the layers' parameters, without gradients or optimizer
  zero::ShardLayout layout_;
  MemoryMeter meter_;
  std::unique_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<Stream> stream_;
  Arena buffers_{"buffers"};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<zero::Parameters> parameters_;
  std::unique_ptr<Arena> activations_;
  Buffer tokens_, logits_;  // on the device
};

}  // namespace trivet
