// Units: the parameters that are gathered, summed over ranks and released together. This is pure arithmetic.
//
//   parameters   embedding  a.weight  a.bias   b.weight  b.bias   head
//   unit given   -          "a"       "a"      "b"       "b"      -
//   units        bucket 0   a         a        b         b        bucket 1
//
// A trainer that gathers (ZeRO-3) names a unit for each module. Parameters without a unit are put into buckets: neighbours
// share a bucket until it would have more than `bucket_elements` elements. Units are in the order of their first parameters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "embed/parameter.h"

namespace trivet::embed {

struct Unit {
  std::string name;
  std::vector<int> parameters;  // indices into the trainer's list, ascending
  LayerRole role = LayerRole::Hidden;
};

// Throws Error (Usage) if a parameter has no name, a size below 1 or more than 2^48 elements, or if a unit has parameters of
// different roles.
std::vector<Unit> make_units(std::span<const Parameter> parameters, int64_t bucket_elements);

// Where each parameter is.
struct UnitPlace {
  int unit = 0, index = 0;  // the unit, and the position in Unit::parameters
};
std::vector<UnitPlace> places_of(std::span<const Unit> units, size_t parameters);

}  // namespace trivet::embed
