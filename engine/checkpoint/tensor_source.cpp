#include "engine/checkpoint/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::checkpoint {
namespace {

[[noreturn]] void refuse(const TensorSource& source, const std::string& ours, const TheirRows& rows, const std::string& what) {
  throw CheckpointError(ExitCode::Usage, fmt::format("{}: tensor \"{}\", needed for {}, {}", source.source(),
                                                     printable(rows.tensor), ours, what));
}

int64_t row_elements(const Shape& shape) { return shape[0] == 0 ? 0 : shape.elements() / shape[0]; }

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
        fmt::format("{}: tensor \"{}\" is stored as {} {}, but {} {} is needed", source.source(), wanted.name,
                    name_of(stored->dtype), to_string(stored->shape), name_of(wanted.data.dtype), to_string(wanted.shape)));
}

MappedSource::MappedSource(const TensorSource& theirs, Table table) : theirs_(theirs), table_(std::move(table)) {
  for (auto& [name, rows] : table_) tensors_.emplace(name, combined(name, rows));
}

TensorInfo MappedSource::combined(const std::string& name, std::vector<TheirRows>& all) const {
  TensorInfo whole;
  for (TheirRows& rows : all) {
    const TensorInfo* const stored = theirs_.find(rows.tensor);
    if (!stored) refuse(theirs_, name, rows, "is absent; is this another model?");
    if (stored->shape.dims() == 0) refuse(theirs_, name, rows, "has no rows");
    if (rows.count == 0) rows.count = stored->shape[0] - rows.first;
    if (rows.first < 0 || rows.count < 1 || rows.first + rows.count > stored->shape[0])
      refuse(
          theirs_, name, rows,
          fmt::format("has {} rows, but rows {} to {} are needed", stored->shape[0], rows.first, rows.first + rows.count - 1));
    Shape shape = stored->shape;
    shape[0] = rows.count;
    if (&rows == &all.front()) {
      whole = {stored->dtype, shape};
      continue;
    }
    Shape alike = shape;
    alike[0] = whole.shape[0];
    if (stored->dtype != whole.dtype || !(alike == whole.shape))
      refuse(theirs_, name, rows,
             fmt::format("is {} {}, which does not continue {} {}", name_of(stored->dtype), to_string(stored->shape),
                         name_of(whole.dtype), to_string(whole.shape)));
    whole.shape[0] += rows.count;
  }
  return whole;
}

const TensorInfo* MappedSource::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void MappedSource::read(std::span<const Piece> wanted) const {
  std::vector<Piece> parts;
  for (const Piece& piece : wanted) {
    check_stored(*this, piece);
    int64_t begin = 0;
    for (const TheirRows& rows : table_.at(piece.name)) {
      Piece part;
      if (part_in(piece, rows, begin, theirs_.find(rows.tensor)->shape, part)) parts.push_back(std::move(part));
      begin += rows.count;
    }
  }
  theirs_.read(parts);
}

}  // namespace trivet::checkpoint
