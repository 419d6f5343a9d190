#include <fmt/format.h>

#include <algorithm>

#include "interchange/foreign/zero_step.h"

namespace trivet::foreign {

void add_groups(const ZeroStep& step, const PtFile& model) {
  const auto& groups = list_of(model, model.member(model.root(), "param_shapes"), "param_shapes");
  if (groups.size() != step.parts.front().size())
    model.refuse(
        fmt::format("has {} groups of parameters, the files of the optimizer {}", groups.size(), step.parts.front().size()));
  for (size_t group = 0; group < groups.size(); ++group) {
    FlatParts whole;
    for (const std::vector<PtTensor>& rank : step.parts) whole.add(rank[group]);
    const Shapes shapes = shapes_of(model, *groups[group]);
    if (!step.paddings.empty() && (step.paddings.size() <= group || step.paddings[group].size() != shapes.size()))
      model.refuse(
          fmt::format("group {} has {} parameters, which does not fit param_alignment_paddings", group, shapes.size()));
    int64_t at = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto& [name, shape] = shapes[i];
      if (shape.elements() > whole.elements() - at)
        refuse_size(model, static_cast<int64_t>(group), name, at + shape.elements(), whole.elements());
      std::vector<Run> runs;
      whole.append_runs(at, shape.elements(), 0, runs);
      add_tensor(step, model, name, shape, whole, std::move(runs));
      at += shape.elements();
      if (!step.paddings.empty()) at += std::min(step.paddings[group][i], whole.elements() - at);
    }
    // Only the end of a group may be padding: less than two elements for each rank.
    if (const int64_t left = whole.elements() - at; left >= 2 * step.ranks)
      model.refuse(fmt::format("group {} ends at element {}, but the ranks hold {}", group, at, whole.elements()));
  }
}

}  // namespace trivet::foreign
