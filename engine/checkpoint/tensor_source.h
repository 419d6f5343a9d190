// The interface of a source of tensors, by name: a checkpoint (loaded_step.h), or weights that another program saved under
// names of its own (MappedSource).
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece.h"

namespace trivet::checkpoint {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::string source() const = 0;                             // the file or directory, for messages
  virtual const TensorInfo* find(const std::string& name) const = 0;  // null: there is no such tensor
  // Where a row of a tensor comes from, for messages: "tensor "wte.weight" of gpt2/model.safetensors".
  virtual std::string origin(const std::string& name, int64_t row) const;
  // Fills the data of every piece. Throws CheckpointError before any data is changed if a tensor is absent or has a different
  // dtype or shape.
  virtual void read(std::span<const Piece> wanted) const = 0;
};

// Throws CheckpointError unless the source has the tensor with the piece's shape and dtype.
void check_stored(const TensorSource& source, const Piece& wanted);

// Rows of one of their tensors: [first, first + count) of its outermost dim.
struct TheirRows {
  std::string tensor;
  int64_t first = 0;
  int64_t count = 0;        // 0: all from `first`
  bool transposed = false;  // their columns are our rows; the tensor is a matrix
  float plus = 0;           // added to each element, which is a float32
};

// Tensors under our names, each made of rows of theirs, one after another:
//
//   blocks.0.attention.qkv.weight = rows of layers.0.q.weight, then of layers.0.k.weight, then of layers.0.v.weight
class MappedSource final : public TensorSource {
 public:
  using Table = std::map<std::string, std::vector<TheirRows>>;
  // `theirs` must outlive this. Throws CheckpointError, naming both tensors, if one of theirs is absent, has too few rows
  // or rows that no tensor of ours has, is transposed but no matrix, or differs from the others of its tensor in dtype or row
  // size.
  MappedSource(const TensorSource& theirs, Table table);

  std::string source() const override { return theirs_.source(); }
  std::string origin(const std::string& name, int64_t row) const override;
  const TensorInfo* find(const std::string& name) const override;
  void read(std::span<const Piece> wanted) const override;

 private:
  void check_all_is_used() const;
  TensorInfo combined(const std::string& name, std::vector<TheirRows>& rows) const;
  Shape shape_of(const TheirRows& rows) const;
  void read_transposed(const Piece& part, const Shape& theirs) const;

  const TensorSource& theirs_;
  Table table_;
  std::map<std::string, TensorInfo> tensors_;
};

}  // namespace trivet::checkpoint
