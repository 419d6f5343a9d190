#include "engine/checkpoint_pieces.h"

#include <algorithm>

#include "engine/optimizer/optimizer_step.h"

namespace trivet {

std::vector<checkpoint::Piece> checkpoint_pieces(Parameters& parameters, const OptimizerConfig& optimizer, int rank,
                                                 PieceRange which) {
  const auto states = optimizer_state_names(optimizer.type, optimizer);
  std::vector<checkpoint::Piece> pieces;
  parameters.for_each_group([&](int, zero::ParameterGroup& group) {
    if (group.layout().role != zero::GroupRole::Own) return;  // its values are the owner's
    const zero::OwnedRange range = group.owned();
    const zero::FlatGroup& layout = group.layout();
    const int64_t first = which == PieceRange::Shard ? rank * layout.shard_elements : range.first;
    const int64_t count = which == PieceRange::Shard ? layout.shard_elements : range.count;
    for (const zero::FlatParameter& parameter : layout.parameters)
      for (const tensor_parallel::LocalBox& box : parameter.part.boxes) {
        if (which == PieceRange::Shard && !box.counted) continue;  // a neighbour of the tensor axis saves it
        const zero::Overlap part = zero::overlap(parameter.offset + box.first, box.shape.elements(), first, count);
        if (part.count == 0) continue;
        const int64_t place = first - range.first + part.first_in_range;
        const auto add = [&](const std::string& name, TensorView view) {
          pieces.push_back({name, parameter.spec.shape, box.start, box.shape, part.first_in_parameter, part.count,
                            view.slice(place, part.count)});
        };
        add(parameter.name, range.master);
        for (size_t i = 0; i < range.states.size(); ++i) add("optimizer." + states[i] + "." + parameter.name, range.states[i]);
      }
  });
  return pieces;
}

void copy_piece(kernels::Kernels& kernels, const checkpoint::Piece& piece, TensorView whole) {
  const int64_t box_cols = piece.box_shape.cols(), cols = piece.shape.cols(),
                rows_before = piece.shape.elements() / piece.shape[0];
  const int64_t start = (piece.shape.dims() > 1 ? piece.box_start[0] * rows_before : 0) + piece.box_start[-1];
  const bool full_rows = box_cols == cols;  // then the box is one run of the whole
  for (int64_t done = 0; done < piece.count;) {
    const int64_t place = piece.first + done;
    const int64_t run = full_rows ? piece.count - done : std::min(piece.count - done, box_cols - place % box_cols);
    const int64_t to = start + (full_rows ? place : place / box_cols * cols + place % box_cols);
    kernels.copy(piece.data.slice(done, run), whole.slice(to, run));
    done += run;
  }
}

}  // namespace trivet
