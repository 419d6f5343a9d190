#include "engine/checkpoint/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::checkpoint {
namespace {

[[noreturn]] void refuse(const TensorSource& source, const std::string& ours, const TheirRows& rows, const std::string& what) {
  throw CheckpointError(ExitCode::Usage, fmt::format("{}: tensor \"{}\", needed for {}, {}", source.source(),
                                                     printable(rows.tensor), ours, what));
}

int64_t row_elements(const Shape& shape) { return shape[0] == 0 ? 0 : shape.elements() / shape[0]; }

constexpr int64_t kTransposeBytes = int64_t{16} << 20;

// Copies elements [first, first + count) of a box of `columns` columns from the transpose of its rows [row, row + rows).
struct Untranspose {
  int64_t first, count, columns, row, rows, element_bytes;
  void run(const std::byte* from, std::byte* to) const {
    const int64_t begin = std::max(first, row * columns), end = std::min(first + count, (row + rows) * columns);
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + (i - first) * element_bytes, from + (i % columns * rows + i / columns - row) * element_bytes,
                  static_cast<size_t>(element_bytes));
  }
};

// The part of `wanted` that is in rows [begin, begin + rows.count) of our tensor, as a piece of their tensor. Both boxes have
// the same columns, so the part is one run of the wanted elements.
bool part_in(const Piece& wanted, const TheirRows& rows, int64_t begin, const Shape& theirs, Piece& part) {
  const int64_t first_row = std::max(wanted.box_start[0], begin);
  const int64_t end_row = std::min(wanted.box_start[0] + wanted.box_shape[0], begin + rows.count);
  if (first_row >= end_row) return false;
  const int64_t row = row_elements(wanted.box_shape), skipped = (first_row - wanted.box_start[0]) * row;
  const int64_t first = std::max(wanted.first, skipped);
  const int64_t end = std::min(wanted.first + wanted.count, skipped + (end_row - first_row) * row);
  if (first >= end) return false;
  part = wanted;
  part.name = rows.tensor;
  part.shape = theirs;
  part.box_start[0] = rows.first + first_row - begin;
  part.box_shape[0] = end_row - first_row;
  part.first = first - skipped;
  part.count = end - first;
  part.data = wanted.data.slice(first - wanted.first, part.count);
  return true;
}

}  // namespace

std::string TensorSource::origin(const std::string& name, int64_t /*row*/) const {
  return fmt::format("tensor \"{}\" of {}", printable(name), printable(source()));
}

void check_stored(const TensorSource& source, const Piece& wanted) {
  const TensorInfo* const stored = source.find(wanted.name);
  if (!stored)
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{}: tensor \"{}\" is not in this checkpoint; is the checkpoint from another "
                                      "model or optimizer?",
                                      source.source(), wanted.name));
  if (!(stored->shape == wanted.shape) || stored->dtype != wanted.data.dtype)
    throw CheckpointError(
        ExitCode::Usage,
        fmt::format("{} is stored as {} {}, but {} {} is needed{}", source.origin(wanted.name, 0), name_of(stored->dtype),
                    to_string(stored->shape), name_of(wanted.data.dtype), to_string(wanted.shape),
                    wanted.name.starts_with("optimizer.") ? "; is the checkpoint from another optimizer?" : ""));
}

MappedSource::MappedSource(const TensorSource& theirs, Table table) : theirs_(theirs), table_(std::move(table)) {
  for (auto& [name, rows] : table_) tensors_.emplace(name, combined(name, rows));
  check_all_is_used();
}

// Refuses tensors of which some rows are not used: they belong to another model.
void MappedSource::check_all_is_used() const {
  struct Use {
    int64_t first, end;
    const std::string* name;
    const TheirRows* rows;
  };
  std::map<std::string, std::vector<Use>> uses;
  for (const auto& [name, all] : table_)
    for (const TheirRows& rows : all) uses[rows.tensor].push_back({rows.first, rows.first + rows.count, &name, &rows});
  for (auto& [tensor, of_tensor] : uses) {
    std::ranges::sort(of_tensor, {}, &Use::first);
    int64_t end = 0;
    for (const Use& use : of_tensor) end = use.first <= end ? std::max(end, use.end) : end;
    const Use& last = of_tensor.back();
    if (const int64_t stored = shape_of(*last.rows)[0]; end != stored)
      refuse(theirs_, *last.name, *last.rows,
             fmt::format("has {} {}, of which row {} and later ones are not used; is this another model?", stored,
                         last.rows->transposed ? "columns" : "rows", end));
  }
}

TensorInfo MappedSource::combined(const std::string& name, std::vector<TheirRows>& all) const {
  TensorInfo whole;
  for (TheirRows& rows : all) {
    const TensorInfo* const stored = theirs_.find(rows.tensor);
    if (!stored) refuse(theirs_, name, rows, "is absent; is this another model?");
    if (stored->shape.dims() == 0) refuse(theirs_, name, rows, "has no rows");
    if (rows.transposed && stored->shape.dims() != 2)
      refuse(theirs_, name, rows, fmt::format("has the shape {}, but a matrix is needed", to_string(stored->shape)));
    Shape shape = shape_of(rows);
    if (rows.plus != 0 && stored->dtype != DType::Float32)
      refuse(theirs_, name, rows, fmt::format("is {}, but float32 is needed", name_of(stored->dtype)));
    if (rows.count == 0) rows.count = shape[0] - rows.first;
    if (rows.first < 0 || rows.count < 1 || rows.first + rows.count > shape[0])
      refuse(theirs_, name, rows,
             fmt::format("has {} {}, but {} to {} are needed", shape[0], rows.transposed ? "columns" : "rows", rows.first,
                         rows.first + rows.count - 1));
    shape[0] = rows.count;
    if (&rows == &all.front()) {
      whole = {stored->dtype, shape};
      continue;
    }
    Shape alike = shape;
    alike[0] = whole.shape[0];
    if (stored->dtype != whole.dtype || !(alike == whole.shape))
      refuse(theirs_, name, rows,
             fmt::format("is {} {}, which does not continue \"{}\", {} {}", name_of(stored->dtype), to_string(stored->shape),
                         printable(all.front().tensor), name_of(whole.dtype), to_string(whole.shape)));
    whole.shape[0] += rows.count;
  }
  return whole;
}

// Returns the shape of the whole tensor, as we see it.
Shape MappedSource::shape_of(const TheirRows& rows) const {
  Shape shape = theirs_.find(rows.tensor)->shape;
  if (rows.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

const TensorInfo* MappedSource::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::string MappedSource::origin(const std::string& name, int64_t row) const {
  const std::vector<TheirRows>& all = table_.at(name);
  for (const TheirRows& rows : all) {
    if (row < rows.count) return theirs_.origin(rows.tensor, rows.transposed ? 0 : rows.first + row);
    row -= rows.count;
  }
  return theirs_.origin(all.back().tensor, 0);
}

void MappedSource::read(std::span<const Piece> wanted) const {
  std::vector<Piece> parts, transposed;
  std::vector<std::pair<TensorView, float>> to_change;
  for (const Piece& piece : wanted) {
    check_stored(*this, piece);
    int64_t begin = 0;
    for (const TheirRows& rows : table_.at(piece.name)) {
      Piece part;
      begin += rows.count;
      if (!part_in(piece, rows, begin - rows.count, shape_of(rows), part)) continue;
      if (rows.plus != 0) to_change.emplace_back(part.data, rows.plus);
      (rows.transposed ? transposed : parts).push_back(std::move(part));
    }
  }
  theirs_.read(parts);
  for (const Piece& part : transposed) read_transposed(part, theirs_.find(part.name)->shape);
  for (const auto& [data, plus] : to_change)
    for (float& value : std::span(data.as<float>(), static_cast<size_t>(data.elements()))) value += plus;
}

// `part` is of the transpose of their tensor. A few of its rows at a time are read as columns of theirs.
void MappedSource::read_transposed(const Piece& part, const Shape& theirs) const {
  const int64_t columns = part.box_shape[1], element_bytes = size_of(part.data.dtype);
  const int64_t at_once = std::max<int64_t>(1, kTransposeBytes / (columns * element_bytes));
  const int64_t end = (part.first + part.count - 1) / columns + 1;
  std::vector<std::byte> memory;
  for (int64_t row = part.first / columns; row < end; row += at_once) {
    const int64_t rows = std::min(at_once, end - row), elements = rows * columns;
    memory.resize(elements * element_bytes);
    Piece piece;
    piece.name = part.name;
    piece.shape = theirs;
    piece.box_start = {part.box_start[1], part.box_start[0] + row};
    piece.box_shape = {columns, rows};
    piece.count = elements;
    piece.data = {memory.data(), part.data.dtype, {elements}};
    theirs_.read({&piece, 1});
    Untranspose{part.first, part.count, columns, row, rows, element_bytes}.run(memory.data(),
                                                                               static_cast<std::byte*>(part.data.data));
  }
}

}  // namespace trivet::checkpoint
