#include "interchange/hugging_face/peft_experts.h"

#include <fmt/format.h>

#include <vector>

#include "interchange/hugging_face/transposed_experts.h"

namespace trivet::hugging_face {

using checkpoint::Piece;

PeftExperts::PeftExperts(const checkpoint::TensorSource& weights, const model::Description& description, bool turns)
    : weights_(weights), experts_(description.experts.count) {
  for (int64_t block = 0; block < description.layers; ++block)
    for (const bool gate_up : {true, false}) {
      const std::string name = fmt::format("blocks.{}.mlp.experts.{}.lora_b", block, gate_up ? "gate_up" : "down");
      const checkpoint::TensorInfo* const ours = weights.find(name);
      if (!ours) continue;
      const Shape shape{ours->shape[0] / experts_, ours->shape[1] * experts_};
      shown_.emplace(name, Shown{{DType::Float32, shape}, gate_up && turns});
    }
}

const checkpoint::TensorInfo* PeftExperts::find(const std::string& name) const {
  const auto found = shown_.find(name);
  return found == shown_.end() ? weights_.find(name) : &found->second.info;
}

void PeftExperts::read(std::span<const Piece> wanted) const {
  for (const Piece& piece : wanted) {
    const auto shown = shown_.find(piece.name);
    if (shown == shown_.end()) {
      weights_.read({&piece, 1});
      continue;
    }
    check_stored(*this, piece);
    read_piece(shown->second, piece);
  }
}

void PeftExperts::read_piece(const Shown& shown, const Piece& piece) const {
  const int64_t out = shown.info.shape[0], rank = shown.info.shape[1] / experts_;
  std::vector<float> ours(static_cast<size_t>(experts_ * out * rank));
  const Piece whole = checkpoint::whole_box_piece(piece.name, {experts_ * out, rank}, 0,
                                                  {ours.data(), DType::Float32, {experts_ * out * rank}});
  weights_.read({&whole, 1});
  for (int64_t i = 0; i < piece.count; ++i) {
    const int64_t element = piece.first + i, width = piece.box_shape[1];
    const int64_t row = piece.box_start[0] + element / width, column = piece.box_start[1] + element % width;
    const int64_t expert = column % experts_, own = expert * out + (shown.turns ? row_in_halves(row, out) : row);
    piece.data.as<float>()[i] = ours[static_cast<size_t>(own * rank + column / experts_)];
  }
}

}  // namespace trivet::hugging_face
