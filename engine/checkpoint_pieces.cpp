#include "engine/checkpoint_pieces.h"

#include <algorithm>

#include "engine/config/optimizer_traits.h"
#include "zero/staging.h"

namespace trivet {

namespace {

// Adds pieces for the elements [first, first + count) of a group, which `range` holds. `counted`: leaves out elements that
// another tensor rank saves. `states`: the names of the states in the range.
void add_pieces(const zero::FlatGroup& layout, const zero::OwnedRange& range, int64_t first, int64_t count, bool counted,
                const std::vector<std::string>& states, std::vector<checkpoint::Piece>& pieces) {
  for (const zero::FlatParameter& parameter : layout.parameters)
    for (const tensor_parallel::LocalBox& box : parameter.part.boxes) {
      if (counted && !box.counted) continue;
      const zero::Intersection part = zero::intersection(parameter.offset + box.first, box.shape.elements(), first, count);
      if (part.count == 0) continue;
      const int64_t at = first - range.first + part.first_in_range;
      const auto add = [&](const std::string& name, TensorView view, zero::StagedTensor* staged) {
        pieces.push_back({name, parameter.spec.shape, box.start, box.shape, part.first_in_parameter, part.count,
                          view.slice(at, part.count), staged, at});
      };
      add(parameter.name, range.master, range.master.staged);
      pieces.back().used_as = range.copy_out.dtype;
      for (size_t i = 0; i < std::min(states.size(), range.states.size()); ++i)
        add("optimizer." + states[i] + "." + parameter.name, range.states[i], range.states[i].staged);
    }
}

// The range as a visit has staged it, with everything in memory.
zero::OwnedRange in_memory_of(zero::OwnedRange range) {
  range.master.staged = range.copy_out.staged = nullptr;
  for (zero::PlacedView& state : range.states) state.staged = nullptr;
  return range;
}

}  // namespace

std::vector<checkpoint::Piece> checkpoint_pieces(zero::Parameters& parameters, const OptimizerConfig& optimizer) {
  std::vector<checkpoint::Piece> pieces;
  const auto states = optimizer_state_names(optimizer);
  parameters.for_each_group([&](int, zero::ParameterGroup& group) {
    const zero::FlatGroup& layout = group.layout();
    if (layout.role != zero::GroupRole::Own || !group.axis().is_counted()) return;  // the owner saves its values
    add_pieces(layout, group.owned(), group.axis().rank() * layout.shard_elements, layout.shard_elements, true, states, pieces);
  });
  return pieces;
}

std::vector<checkpoint::Piece> checkpoint_pieces_to_load(zero::Parameters& parameters, const OptimizerConfig& optimizer) {
  std::vector<checkpoint::Piece> pieces;
  const auto states = optimizer_state_names(optimizer);
  parameters.for_each_group([&](int, zero::ParameterGroup& group) {
    if (group.layout().role != zero::GroupRole::Own) return;
    const zero::OwnedRange range = group.owned();
    add_pieces(group.layout(), range, range.first, range.count, false, states, pieces);
  });
  return pieces;
}

void load_pieces(zero::Parameters& parameters, const OptimizerConfig& optimizer, const LoadResources& resources) {
  std::vector<checkpoint::Piece> in_memory;
  std::vector<zero::ParameterGroup*> staged;
  const auto states = resources.weights_alone ? std::vector<std::string>() : optimizer_state_names(optimizer);
  parameters.for_each_group([&](int, zero::ParameterGroup& group) {
    if (group.layout().role != zero::GroupRole::Own) return;
    const zero::OwnedRange range = group.owned();
    if (range.staged()) return staged.push_back(&group);
    add_pieces(group.layout(), range, range.first, range.count, false, states, in_memory);
  });
  resources.read(in_memory);
  const auto load_range = [&](const zero::OwnedPiece& piece, const zero::OwnedRange& range) {
    kernels::Kernels& kernels = range.kernels(resources.kernels);
    if (range.master.staged) kernels.zero(range.master);  // padding between parameters
    for (size_t i = 0; i < std::min(states.size(), range.states.size()); ++i)
      if (range.states[i].staged) kernels.zero(range.states[i]);
    std::vector<checkpoint::Piece> pieces;
    add_pieces(piece.group->layout(), in_memory_of(range), range.first, range.count, false, states, pieces);
    range.host ? resources.read_on_host(pieces) : resources.read(pieces);
    if (!range.copy_out.absent()) kernels.copy(range.master, range.copy_out);
  };
  for (zero::ParameterGroup* group : staged) {
    zero::RangeAccess access = zero::access_to_all(*group, zero::Access::Write);
    if (resources.weights_alone) access.states.clear();
    zero::visit(zero::pieces_of(*group, resources.staging.most_elements), access, resources.buffers, resources.staging,
                load_range);
  }
  parameters.for_each_group([&](int, zero::ParameterGroup& group) {
    const zero::OwnedRange range = group.owned();
    if (!range.staged() && !range.copy_out.absent()) resources.kernels.copy(range.master, range.copy_out);
  });
}

void copy_piece(kernels::Kernels& kernels, const checkpoint::Piece& piece, TensorView whole) {
  const int64_t box_cols = piece.box_shape.cols(), cols = piece.shape.cols(),
                rows_before = piece.shape.elements() / piece.shape[0];
  const int64_t start = (piece.shape.dims() > 1 ? piece.box_start[0] * rows_before : 0) + piece.box_start[-1];
  const bool full_rows = box_cols == cols;  // then the box is contiguous in `whole`
  zero::StagedTensorReader reader;
  const ConstTensorView data = piece.staged ? reader.read(*piece.staged, piece.staged_first, piece.count) : piece.data;
  for (int64_t done = 0; done < piece.count;) {
    const int64_t place = piece.first + done;
    const int64_t run = full_rows ? piece.count - done : std::min(piece.count - done, box_cols - place % box_cols);
    const int64_t to = start + (full_rows ? place : place / box_cols * cols + place % box_cols);
    kernels.copy(data.slice(done, run), whole.slice(to, run));
    done += run;
  }
}

}  // namespace trivet
