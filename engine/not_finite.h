// The search for the first tensor of a step that holds a NaN or an infinity.
//
// A step that went wrong is repeated with a search: the engine is deterministic and a skipped step changed no weight, so the
// same tensors go wrong again. Each tensor is copied to the host and inspected, which is slow, so this is done only when the
// run ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/layer.h"
#include "kernels/interface.h"
#include "model/model.h"

namespace trivet {

struct NotFinite {
  // Findings are ordered by pass, microbatch, place and rank; the first is the cause of the later ones.
  enum class Pass : uint8_t { Forward, Backward };
  Pass pass = Pass::Forward;
  int64_t microbatch = 0;
  int64_t place = 0;  // index of the block in the order of the pass
  int rank = 0;       // world rank
  std::string what;   // "the output of blocks.3"
  int64_t element = 0;
  double value = 0;

  bool operator<(const NotFinite& other) const;
};

// "the output of blocks.3 in microbatch 0 on rank 1 (element 17 is inf)"
std::string to_sentence(const NotFinite& found);
// Converts to text for the other ranks, and back.
std::string to_text(const NotFinite& found);
NotFinite parse_not_finite(const std::string& text);

// One rank's search during one run of a program. It keeps the finding that comes first in the order of NotFinite, because a
// schedule may run the backward of one microbatch before the forward of another; the ranks then choose among their findings in
// the same order. One thread.
class NotFiniteSearch {
 public:
  NotFiniteSearch(const model::Model& model, kernels::Kernels& kernels, int rank)
      : model_(model), kernels_(kernels), rank_(rank) {}

  void look_at_output(int block, int64_t microbatch, ConstTensorView output);
  void look_at_loss(int block, int64_t microbatch, ConstTensorView loss);
  // `gradients`: those of the block's parameters so far. `input_gradient` may be absent.
  void look_at_gradients(int block, int64_t microbatch, const std::vector<Gradient>& gradients);
  void look_at_input_gradient(int block, int64_t microbatch, ConstTensorView input_gradient);

  const std::optional<NotFinite>& found() const { return found_; }

 private:
  void look_at(ConstTensorView tensor, NotFinite where);
  const std::string& name(int block) const { return model_.names[block]; }
  int64_t backward_place(int block) const { return static_cast<int64_t>(model_.layers.size()) - block; }

  const model::Model& model_;
  kernels::Kernels& kernels_;
  int rank_;
  std::optional<NotFinite> found_;
  std::vector<std::byte> on_host_;
};

}  // namespace trivet
