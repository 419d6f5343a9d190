#include <fmt/format.h>

#include <algorithm>

#include "core/printable.h"
#include "interchange/foreign/zero_step.h"

namespace trivet::foreign {
namespace {

int64_t partition_size(int64_t elements, int64_t ranks) { return elements / ranks + (elements % ranks != 0); }

}  // namespace

void add_stage_3(const ZeroStep& step, const PtFile& model) {
  std::vector<FlatParts> ranks(step.parts.size());
  for (size_t rank = 0; rank < step.parts.size(); ++rank)
    for (const PtTensor& group : step.parts[rank]) ranks[rank].add(group);
  for (const FlatParts& rank : ranks)
    if (rank.elements() != ranks.front().elements()) model.refuse("the ranks hold different numbers of elements");
  int64_t at = 0;
  for (const PickleValue* group : list_of(model, model.member(model.root(), "param_shapes"), "param_shapes"))
    for (const auto& [name, shape] : shapes_of(model, *group)) {
      const int64_t part = partition_size(shape.elements(), step.ranks);
      if (part > ranks.front().elements() - at) refuse_size(model, 0, name, at + part, ranks.front().elements());
      std::vector<Run> runs;
      for (int64_t rank = 0; rank < step.ranks; ++rank) {
        const int64_t to = rank * part;
        ranks[static_cast<size_t>(rank)].append_runs(at, std::min(part, shape.elements() - to), to, runs);
      }
      add_tensor(step, model, name, shape, ranks.front(), std::move(runs));
      at += part;
    }
  if (at != ranks.front().elements())
    model.refuse(fmt::format("its parameters end at element {}, but each rank holds {}", at, ranks.front().elements()));
}

void add_frozen_parts(const ZeroStep& step, const PtFile& first, const std::vector<std::string>& names) {
  const PickleValue* const dict = find_member(first.root(), "frozen_param_shapes");
  if (!dict || !dict->is(PickleKind::Dict) || dict->items.empty()) return;
  const Shapes shapes = shapes_of(first, *dict);
  if (static_cast<int64_t>(names.size()) != step.ranks)
    first.refuse(fmt::format("is one of {} files, but there are {} ranks", names.size(), step.ranks));
  std::vector<FlatParts> wholes(shapes.size());
  for (const std::string& file_name : names) {
    const PtFile file = step.open(file_name);
    const PickleMembers fragments(file.member(file.root(), "frozen_param_fragments"));
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto& [name, shape] = shapes[i];
      const PickleValue* const found = fragments.find(name);
      if (!found) file.refuse(fmt::format("\"{}\" is absent", printable(name)));
      const PtTensor fragment = file.tensor(*found, name);
      if (fragment.shape.elements() != partition_size(shape.elements(), step.ranks))
        file.refuse(fmt::format("its part of \"{}\" has {} elements, not {}", printable(name), fragment.shape.elements(),
                                partition_size(shape.elements(), step.ranks)));
      wholes[i].add(fragment);
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto& [name, shape] = shapes[i];
    std::vector<Run> runs;
    wholes[i].append_runs(0, shape.elements(), 0, runs);
    add_tensor(step, first, name, shape, wholes[i], std::move(runs));
  }
}

}  // namespace trivet::foreign
