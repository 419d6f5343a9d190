#include "engine/checkpoint_pieces.h"

#include "engine/optimizer/optimizer_step.h"

namespace trivet {

std::vector<checkpoint::Piece> checkpoint_pieces(Parameters& parameters, const OptimizerConfig& optimizer, int rank,
                                                 PieceRange which) {
  const auto states = optimizer_state_names(optimizer.type, optimizer);
  std::vector<checkpoint::Piece> pieces;
  parameters.for_each_group([&](int, zero::ParameterGroup& group) {
    const zero::OwnedRange range = group.owned();
    const zero::FlatGroup& layout = group.layout();
    const int64_t first = which == PieceRange::Shard ? rank * layout.shard_elements : range.first;
    const int64_t count = which == PieceRange::Shard ? layout.shard_elements : range.count;
    for (const zero::FlatParameter& parameter : layout.parameters) {
      const zero::Overlap part = zero::overlap(parameter, first, count);
      if (part.count == 0) continue;
      const int64_t place = first - range.first + part.first_in_range;
      const auto add = [&](const std::string& name, TensorView view) {
        pieces.push_back(
            checkpoint::whole_box_piece(name, parameter.spec.shape, part.first_in_parameter, view.slice(place, part.count)));
      };
      add(parameter.name, range.master);
      for (size_t i = 0; i < range.states.size(); ++i) add("optimizer." + states[i] + "." + parameter.name, range.states[i]);
    }
  });
  return pieces;
}

}  // namespace trivet
