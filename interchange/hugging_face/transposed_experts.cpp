#include "interchange/hugging_face/transposed_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace trivet::hugging_face {
namespace {

using checkpoint::Piece;

constexpr std::string_view kBias = "_bias";

// The place, in the other order, of the output that is at `row` in one of them.
int64_t other_row(int64_t row, int64_t rows, bool to_ours) {
  if (to_ours) return row < rows / 2 ? 2 * row : 2 * (row - rows / 2) + 1;
  return row_in_halves(row, rows);
}

}  // namespace

int64_t row_in_halves(int64_t row, int64_t rows) { return row % 2 == 0 ? row / 2 : rows / 2 + row / 2; }

TransposedExperts::TransposedExperts(const checkpoint::TensorSource& from, const std::vector<std::string>& names,
                                     const model::Description& description, To to, const std::set<std::string>& outputs_first)
    : from_(from), count_(description.experts.count), to_(to) {
  const int64_t hidden = description.hidden_size, feed_forward = description.experts.feed_forward_size;
  for (const std::string& name : names) {
    const bool bias = name.ends_with(kBias);
    const std::string_view weight = std::string_view(name).substr(0, name.size() - (bias ? kBias.size() : 0));
    const bool gate_up = weight.ends_with(".mlp.experts.gate_up_proj"), down = weight.ends_with(".mlp.experts.down_proj");
    if (!gate_up && !down) continue;
    Experts experts{.rows = gate_up ? 2 * feed_forward : hidden,
                    .columns = bias      ? 1
                               : gate_up ? hidden
                                         : feed_forward,
                    .alternate = gate_up,
                    .bias = bias,
                    .inputs_first = to == To::Ours && !outputs_first.contains(name)};
    const Shape ours = bias ? Shape{count_ * experts.rows} : Shape{count_ * experts.rows, experts.columns};
    const Shape theirs = bias ? Shape{count_, experts.rows} : Shape{count_, experts.columns, experts.rows};
    const checkpoint::TensorInfo* const stored = from.find(name);
    const Shape packed{count_, experts.rows, experts.columns};
    const Shape& wanted = outputs_first.contains(name) ? packed : to == To::Ours ? theirs : ours;
    if (!(stored->shape == wanted))
      throw CheckpointError(ExitCode::Usage,
                            fmt::format("{} has the shape {}, but {} experts of this config.json have {}", from.origin(name, 0),
                                        to_string(stored->shape), count_, to_string(wanted)));
    experts.shown = {stored->dtype, to == To::Ours ? ours : theirs};
    tensors_.emplace(name, experts);
  }
}

std::string TransposedExperts::origin(const std::string& name, int64_t row) const {
  return from_.origin(name, tensors_.contains(name) ? 0 : row);
}

const checkpoint::TensorInfo* TransposedExperts::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? from_.find(name) : &found->second.shown;
}

void TransposedExperts::read(std::span<const Piece> wanted) const {
  std::vector<Piece> of_experts, others;
  for (const Piece& piece : wanted) (tensors_.contains(piece.name) ? of_experts : others).push_back(piece);
  for (const Piece& piece : of_experts) checkpoint::check_stored(*this, piece);
  from_.read(others);
  for (const Piece& piece : of_experts) read_piece(tensors_.at(piece.name), piece);
}

// Goes over runs of the last dim: a row of ours has the same output, a row of theirs the same input.
void TransposedExperts::read_piece(const Experts& experts, const Piece& piece) const {
  const std::scoped_lock lock(mutex_);
  const bool to_ours = to_ == To::Ours, has_rows = piece.shape.dims() > 1;
  const int last = static_cast<int>(piece.shape.dims()) - 1;
  const int64_t box_width = piece.box_shape[last], width = piece.shape[last];
  const int64_t before = has_rows && piece.shape.dims() == 3 ? piece.box_shape[1] : piece.box_shape[0];
  float* const out = piece.data.as<float>();
  for (int64_t done = 0; done < piece.count;) {
    const int64_t e = piece.first + done, count = std::min(box_width - e % box_width, piece.count - done);
    int64_t line = e / box_width;  // in the tensor, as rows of its last dim
    if (piece.shape.dims() == 3)
      line = (piece.box_start[0] + line / before) * piece.shape[1] + piece.box_start[1] + line % before;
    else if (has_rows)
      line += piece.box_start[0];
    for (int64_t i = 0; i < count;) {
      const int64_t flat = line * width + piece.box_start[last] + e % box_width + i;
      const int64_t of_expert = experts.rows * experts.columns, expert = flat / of_expert, within = flat % of_expert;
      const std::vector<float>& from = matrix(piece.name, experts, expert);
      const bool by_row = to_ours && !experts.bias;
      const int64_t step =
          std::min(count - i, by_row ? experts.columns - within % experts.columns : experts.rows - within % experts.rows);
      for (int64_t k = 0; k < step; ++k) {
        const int64_t row = by_row ? within / experts.columns : within % experts.rows + k;
        const int64_t column = by_row ? within % experts.columns + k : within / experts.rows;
        const int64_t other = experts.alternate ? other_row(row, experts.rows, to_ours) : row;
        out[done + i + k] =
            from[static_cast<size_t>(experts.inputs_first ? column * experts.rows + other : other * experts.columns + column)];
      }
      i += step;
    }
    done += count;
  }
}

const std::vector<float>& TransposedExperts::matrix(const std::string& name, const Experts& experts, int64_t expert) const {
  if (kept_.second == expert && kept_.first == name) return matrix_;
  const int64_t elements = experts.rows * experts.columns;
  kept_ = {"", -1};  // also if the read fails
  matrix_.resize(static_cast<size_t>(elements));
  const Piece piece = checkpoint::whole_box_piece(name, from_.find(name)->shape, expert * elements,
                                                  {matrix_.data(), DType::Float32, {elements}});
  from_.read({&piece, 1});
  kept_ = {name, expert};
  return matrix_;
}

}  // namespace trivet::hugging_face
