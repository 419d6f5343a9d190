// The parameters that this rank updates, and which of their elements it counts in sums over ranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/layer.h"
#include "zero/parameter_group.h"
#include "zero/parameters.h"

namespace trivet {

struct OwnedParameter {
  zero::ParameterGroup* group = nullptr;
  int index = 0;  // in the group
  const zero::FlatParameter& flat() const { return group->layout().parameters[index]; }
};

// A trainable group.
struct OwnedGroup {
  zero::ParameterGroup* group = nullptr;
  LayerRole role = LayerRole::Hidden;  // role of the layer that has these parameters
  size_t first_parameter = 0;          // where its parameters begin in OwnedParameters::all()
};

// Elements of a group's owned range, counted from the beginning of the range.
struct OwnedPart {
  int64_t first = 0, count = 0;
};

class OwnedParameters {
 public:
  explicit OwnedParameters(zero::Parameters& parameters);

  std::span<const OwnedGroup> groups() const { return groups_; }
  std::span<const OwnedParameter> all() const { return all_; }
  const OwnedGroup& of(const zero::ParameterGroup& group) const { return groups_[places_.at(&group)]; }

 private:
  std::vector<OwnedGroup> groups_;
  std::vector<OwnedParameter> all_;
  std::map<const zero::ParameterGroup*, size_t> places_;  // in groups_
};

// The parts of a parameter that this rank alone counts: its shard of what no other tensor rank counts. `range` is the owned
// range of the parameter's group.
std::vector<OwnedPart> counted_parts(const OwnedParameter& parameter, const zero::OwnedRange& range);
// The elements of a block of the parameter's sums of squares.
int64_t sum_block(const OwnedParameter& parameter);

}  // namespace trivet
