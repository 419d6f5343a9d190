// A file of numbers without names: a header of 32-bit integers, then tensors one after another. Their places follow
// from the header alone, so everything is checked against the size of the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file_system.h"
#include "core/shape.h"
#include "interchange/foreign/tensor_files.h"

namespace trivet::foreign {

inline constexpr int64_t kMostLayers = 10'000;

// The first integers of the file; fewer if it is shorter.
std::vector<int32_t> read_integers(const ReadableFile& file, size_t count);

class FlatFile {
 public:
  // `format`: for messages, "llama2.c".
  FlatFile(const ReadableFile& file, std::string format, DType dtype, int64_t begin_bytes);

  // A number of the header, which must be in [1, most]. Throws CheckpointError (CheckpointCorrupt).
  int64_t positive(const char* name, int64_t value, int64_t most = int64_t{1} << 30) const;
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_kind(const std::string& what) const;  // a file in order, but of another kind: Usage

  // The next tensor. Throws CheckpointError (CheckpointCorrupt) if the file ends before it does.
  Run take(const Shape& shape);
  // Nothing may be left.
  void finish() const;

 private:
  const ReadableFile& file_;
  std::string format_;
  DType dtype_;
  int64_t at_bytes_;
};

// The rows of a matrix that makes queries or keys, in the order of transformers. Rotary positions turn pairs of elements of a
// head: here they are neighbours, in transformers the i-th of the head's first half and the i-th of its second. `matrix`: rows
// of `heads` heads, one after another in a file.
std::vector<Run> rows_as_halves(const Run& matrix, int64_t heads, int64_t head_size, int64_t columns, DType stored);

}  // namespace trivet::foreign
