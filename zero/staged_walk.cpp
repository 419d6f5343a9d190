#include "zero/staged_walk.h"

#include <algorithm>
#include <stdexcept>

#include "zero/staging.h"

namespace trivet::zero {
namespace {

bool reads(Access access) { return access == Access::Read || access == Access::ReadWrite; }
bool writes(Access access) { return access == Access::Write || access == Access::ReadWrite; }

// A staged tensor of a piece: the elements [first, first + count) of `staged`, which include those of the piece.
struct VisitedTensor {
  StagedTensor* staged = nullptr;
  Access access = Access::None;
  TensorView* view = nullptr;  // view of the piece's range
  int64_t first = 0, count = 0, skipped = 0;
  TensorView memory;

  int64_t bytes() const { return staging_bytes(count * size_of(staged->dtype())); }
};

VisitedTensor visited(const OwnedPiece& piece, StagedTensor* staged, Access access, TensorView* view) {
  const int64_t granule = staged->granule_elements();
  VisitedTensor tensor{staged, access, view};
  tensor.first = piece.first / granule * granule;
  tensor.skipped = piece.first - tensor.first;
  const int64_t end = (piece.first + piece.count + granule - 1) / granule * granule;
  tensor.count = std::min(end, staged->elements()) - tensor.first;
  if (writes(access) && (tensor.skipped != 0 || tensor.count != piece.count))
    throw std::logic_error("zero: a piece that is written begins or ends within a granule of the staged tensor");
  return tensor;
}

OwnedRange piece_of(const OwnedPiece& piece) {
  OwnedRange range = piece.group->owned();
  const auto cut = [&](auto& view) {
    if (!view.absent()) view = view.slice(piece.first, piece.count);
  };
  cut(range.master);
  cut(range.copy_out);
  cut(range.gradient);
  for (TensorView& state : range.states) cut(state);
  range.first += piece.first;
  range.count = piece.count;
  return range;
}

// Calls use(tensor, access) for the tensors that a visit may write.
template <typename Use>
void for_each_tensor(OwnedRange& range, const RangeAccess& access, Use&& use) {
  use(range.master, access.master);
  use(range.copy_out, access.copy_out);
  for (size_t i = 0; i < range.states.size() && i < access.states.size(); ++i) use(range.states[i], access.states[i]);
}

// The tensor itself, if the kernels of the range can use it where it is.
TensorView usable_in_place(const OwnedRange& range, StagedTensor& tensor) {
  return range.host ? tensor.host_memory() : TensorView{};
}

// A piece on its way through memory.
struct Visit {
  const OwnedPiece* piece = nullptr;
  OwnedRange range;
  TensorView gradient;  // staged
  std::vector<VisitedTensor> tensors;
  std::vector<PendingCopy> copies;

  Visit(const OwnedPiece& of, const RangeAccess& access) : piece(&of), range(piece_of(of)) {
    const auto add = [&](StagedTensor* staged, Access how, TensorView& view) {
      if (!staged || how == Access::None) return;
      if (const TensorView memory = usable_in_place(range, *staged); !memory.absent())
        view = memory.slice(of.first, of.count);
      else
        tensors.push_back(visited(of, staged, how, &view));
    };
    add(range.gradient.staged, access.gradient ? Access::Read : Access::None, gradient);
    for_each_tensor(range, access, [&](PlacedView& tensor, Access how) { add(tensor.staged, how, tensor); });
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  // After an error, copies in flight still use staging memory that is released when visit() returns.
  ~Visit() {
    for (const PendingCopy& copy : copies) {
      try {
        copy.wait();
      } catch (...) {
      }
    }
  }

  int64_t bytes() const {
    int64_t sum = 0;
    for (const VisitedTensor& tensor : tensors) sum += tensor.bytes();
    return sum;
  }
  void read(const StagingMemory& memory) {
    int64_t offset = 0;
    for (VisitedTensor& tensor : tensors) {
      tensor.memory = memory.tensor(offset, tensor.staged->dtype(), tensor.count);
      *tensor.view = tensor.memory.slice(tensor.skipped, range.count);
      offset += tensor.bytes();
      if (reads(tensor.access)) copies.push_back(tensor.staged->read(tensor.first, tensor.memory));
    }
  }
  void write() {
    for (const VisitedTensor& tensor : tensors)
      if (writes(tensor.access)) copies.push_back(tensor.staged->write(tensor.first, tensor.memory));
  }
  void wait() {
    for (const PendingCopy& copy : copies) copy.wait();
    copies.clear();
    if (!gradient.absent()) range.gradient = gradient;
  }
};

}  // namespace

RangeAccess access_to_all(const ParameterGroup& group, Access access) {
  return {access, access, std::vector<Access>(group.options().optimizer_states, access)};
}

std::vector<OwnedPiece> pieces_of(ParameterGroup& group, int64_t most_elements) {
  const OwnedRange range = group.owned();
  const int64_t most = range.staged() ? std::max<int64_t>(most_elements / kPieceAlignment, 1) * kPieceAlignment : range.count;
  std::vector<OwnedPiece> pieces;
  for (int64_t first = 0; first < range.count; first += most)
    pieces.push_back({&group, first, std::min(most, range.count - first)});
  return pieces;
}

// Adds a granule at both ends.
int64_t most_staged_bytes(ParameterGroup& group, const RangeAccess& access, int64_t elements) {
  OwnedRange range = group.owned();
  int64_t sum = 0;
  for_each_tensor(range, access, [&](const PlacedView& tensor, Access how) {
    StagedTensor* const staged = tensor.staged;
    if (!staged || how == Access::None || !usable_in_place(range, *staged).absent()) return;
    sum += staging_bytes(std::min(elements + 2 * staged->granule_elements(), staged->elements()) * size_of(staged->dtype()));
  });
  return sum;
}

void visit(std::span<const OwnedPiece> pieces, const RangeAccess& access, Arena& buffers, const StagingOptions& options,
           const UsePiece& use, int64_t least_set_bytes) {
  std::vector<std::unique_ptr<Visit>> visits;
  for (const OwnedPiece& piece : pieces) visits.push_back(std::make_unique<Visit>(piece, access));
  int64_t set_bytes = least_set_bytes;
  std::vector<size_t> with_staging;  // visits[with_staging[k]] uses set k % sets
  for (size_t i = 0; i < visits.size(); ++i) {
    set_bytes = std::max(set_bytes, visits[i]->bytes());
    if (visits[i]->bytes() > 0) with_staging.push_back(i);
  }
  const size_t most_sets = 1 + options.read_ahead + options.write_behind;
  const size_t sets = least_set_bytes > 0 ? most_sets : std::min(most_sets, with_staging.size());
  std::vector<StagingMemory> memory(sets);
  HostSide* const host = visits.empty() ? nullptr : visits.front()->range.host;
  for (StagingMemory& set : memory) set = StagingMemory(host ? host->staging() : buffers, set_bytes);

  size_t read = 0, staged_before = 0;
  // Starts reading all staged pieces before number `end`, each after the piece that had its buffers has been written.
  const auto read_up_to = [&](size_t end) {
    for (; read < std::min(end, with_staging.size()); ++read) {
      if (read >= sets) visits[with_staging[read - sets]]->wait();
      visits[with_staging[read]]->read(memory[read % sets]);
    }
  };
  for (const std::unique_ptr<Visit>& now : visits) {
    const bool is_staged = !now->tensors.empty();
    if (is_staged) read_up_to(staged_before + (options.read_ahead ? 2 : 1));
    now->wait();
    use(*now->piece, now->range);
    if (!is_staged) continue;
    now->write();
    if (!options.write_behind) now->wait();
    ++staged_before;
  }
  for (const std::unique_ptr<Visit>& done : visits) done->wait();
}

}  // namespace trivet::zero
