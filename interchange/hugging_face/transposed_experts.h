// The experts of gpt-oss. Its files hold all of a layer together, with inputs as rows and the outputs of gate and up in turns;
// ours have outputs as rows, first those of gate:
//
//   mlp.experts.gate_up_proj [E, H, 2F]     columns g0 u0 g1 u1 ...       ours  [E 2F, H]     rows g0 g1 ... u0 u1 ...
//   mlp.experts.gate_up_proj_bias [E, 2F]                                       [E 2F]
//   mlp.experts.down_proj [E, F, H]                                             [E H, F]
//   mlp.experts.down_proj_bias [E, H]                                           [E H]
//
// In MXFP4, the matrices in their files have outputs as rows: [E, 2F, H] with rows g0 u0 g1 u1 ..., and [E, H, F].
//
// E experts, H hidden, F feed-forward. Both directions read the matrix of an expert at a time, which they keep for the next
// read. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoint/tensor_source.h"
#include "model/description.h"

namespace trivet::hugging_face {

// The place, where gate precedes up, of the row that is at `row` where they take turns.
int64_t row_in_halves(int64_t row, int64_t rows);

class TransposedExperts final : public checkpoint::TensorSource {
 public:
  enum class To { Ours, Theirs };  // the order that this shows; `from` has the other one, and must outlive this
  // Throws CheckpointError if a tensor of experts in `from` has another shape than the description says.
  // `outputs_first`: the tensors of `from` that have outputs as rows although they are theirs.
  TransposedExperts(const checkpoint::TensorSource& from, const std::vector<std::string>& names,
                    const model::Description& description, To to, const std::set<std::string>& outputs_first = {});

  std::string source() const override { return from_.source(); }
  std::string origin(const std::string& name, int64_t row) const override;
  const checkpoint::TensorInfo* find(const std::string& name) const override;
  void read(std::span<const checkpoint::Piece> wanted) const override;

 private:
  // The matrices of one tensor: in one order [rows, columns], in the other one transposed.
  struct Experts {
    checkpoint::TensorInfo shown;
    int64_t rows = 0, columns = 0;  // as ours are: outputs and inputs; a bias has one column
    bool alternate = false;         // their outputs are those of gate and up in turns
    bool bias = false;
    bool inputs_first = false;  // in `from`
  };
  void read_piece(const Experts& experts, const checkpoint::Piece& piece) const;
  // The elements of an expert in the order of `from`.
  const std::vector<float>& matrix(const std::string& name, const Experts& experts, int64_t expert) const;

  const checkpoint::TensorSource& from_;
  int64_t count_;
  To to_;
  std::map<std::string, Experts> tensors_;
  mutable std::mutex mutex_;
  mutable std::pair<std::string, int64_t> kept_{"", -1};  // the tensor and the expert of `matrix_`
  mutable std::vector<float> matrix_;
};

}  // namespace trivet::hugging_face
