#include "tensor_parallel/split.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

#include "core/error.h"

namespace trivet::tensor_parallel {
namespace {

void check_split(const ParameterSpec& parameter) {
  const Split& split = parameter.split;
  const auto refuse = [&](const char* why) {
    throw std::logic_error(fmt::format("split of {} {}: {}", parameter.name, to_string(parameter.shape), why));
  };
  if (split.dim >= parameter.shape.dims()) refuse("the shape has no such dim");
  if (std::accumulate(split.segments.begin(), split.segments.end(), int64_t{0}) != parameter.shape[split.dim])
    refuse("the segments do not add up to the dim");
  if (!split.units.empty() && split.units.size() != split.segments.size()) refuse("each segment needs a number of units");
  if (split.dim > 0 && split.dim + 1 < parameter.shape.dims()) refuse("only the first or the last dim can be split");
  if (split.dim > 0 && split.segments.size() > 1) refuse("only dim 0 can have several segments");
  for (size_t i = 0; i < split.units.size(); ++i)
    if (split.units[i] < 1 || split.segments[i] % split.units[i] != 0) refuse("units do not divide their segment");
}

}  // namespace

bool can_divide(int64_t units, int size, bool may_share) { return units >= size || (may_share && size % units == 0); }

UnitRange unit_range(int64_t units, int rank, int size) {
  if (units >= size) return {units * rank / size, units * (rank + 1) / size, true};
  const int64_t unit = units * rank / size;
  return {unit, unit + 1, rank == 0 || units * (rank - 1) / size != unit};
}

LocalPart local_part(const ParameterSpec& parameter, int rank, int size) {
  const Split& split = parameter.split;
  Shape whole_start = parameter.shape;
  for (int dim = 0; dim < whole_start.dims(); ++dim) whole_start[dim] = 0;
  if (split.dim < 0 || size == 1) return {parameter.shape, {{whole_start, parameter.shape, 0, rank == 0}}};
  check_split(parameter);
  LocalPart part;
  part.shape = parameter.shape;
  part.shape[split.dim] = 0;
  int64_t segment_start = 0, first = 0;
  for (size_t i = 0; i < split.segments.size(); ++i) {
    const int64_t units = split.units.empty() ? split.segments[i] : split.units[i];
    if (!can_divide(units, size, !split.units.empty() && split.dim == 0))
      throw ConfigError(fmt::format("parallel.tensor: {} parts of {} cannot be divided among {} ranks; use a divisor of {}",
                                    units, parameter.name, size, units));
    const int64_t unit = split.segments[i] / units;
    const UnitRange range = unit_range(units, rank, size);
    LocalBox box{whole_start, parameter.shape, first, range.counted};
    box.start[split.dim] = segment_start + range.begin * unit;
    box.shape[split.dim] = range.count() * unit;
    part.shape[split.dim] += box.shape[split.dim];
    first += box.shape.elements();
    part.boxes.push_back(box);
    segment_start += split.segments[i];
  }
  return part;
}

}  // namespace trivet::tensor_parallel
