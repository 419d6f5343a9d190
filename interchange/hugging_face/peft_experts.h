// Adapters of experts as PEFT has them (its ParamWrapper): one pair of matrices for a parameter of all experts, E of them.
//
//   ours   A [E r, in]     row e r + k                   theirs   lora_A [r E, in]   the same
//          B [E out, r]    row e out + o, column k                lora_B [out, r E]  row o, column k E + e
#pragma once

#include <map>
#include <string>

#include "engine/checkpoint/tensor_source.h"
#include "model/description.h"

namespace trivet::hugging_face {

class PeftExperts final : public checkpoint::TensorSource {
 public:
  // Shows each B of experts, under our name, in their form. `turns`: gate and up take turns there (transposed_experts.h).
  // `weights` must outlive this, and be able to give float32.
  PeftExperts(const checkpoint::TensorSource& weights, const model::Description& description, bool turns);

  std::string source() const override { return weights_.source(); }
  const checkpoint::TensorInfo* find(const std::string& name) const override;
  void read(std::span<const checkpoint::Piece> wanted) const override;

 private:
  struct Shown {
    checkpoint::TensorInfo info;
    bool turns = false;
  };
  void read_piece(const Shown& shown, const checkpoint::Piece& piece) const;

  const checkpoint::TensorSource& weights_;
  int64_t experts_;
  std::map<std::string, Shown> shown_;
};

}  // namespace trivet::hugging_face
