#include "hvd/operations.h"

#include <algorithm>

#include "hvd/convert.h"
#include "hvd/slices.h"

namespace trivet::hvd {
namespace {

Scale before(const Request& request) { return {.factor = request.prescale_factor}; }
Scale after(const Request& request, int ranks) {
  return {.factor = request.postscale_factor, .divisor = request.op == ReduceOp::Average ? double(ranks) : 1.0};
}

int64_t rows_of(const std::optional<Request>& request) { return request ? request->shape[0] : 0; }
int64_t row_elements(const Request& request) {
  int64_t product = 1;
  for (int64_t dim : request.shape.span().subspan(1)) product *= dim;
  return product;
}
Shape with_rows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

}  // namespace

int64_t rows_of_rank(int64_t rows, int rank, int ranks) { return rows / ranks + (rank < rows % ranks ? 1 : 0); }

Operations::Operations(comm::ProcessGroup& group, Timeline& timeline, std::string prefix)
    : group_(group), timeline_(timeline), prefix_(std::move(prefix)), stream_(make_inline_stream()) {}

void Operations::run(std::span<const Item> batch) {
  const Request& first = batch[0].agreed->any();
  std::vector<std::string> rows;
  for (const Item& item : batch) rows.push_back(prefix_ + item.agreed->name);
  const TimelineSpan span(timeline_, rows, activity_of(first.collective));
  switch (first.collective) {
    case Collective::Allreduce: allreduce(batch, rows); break;
    case Collective::Allgather: allgather(batch[0]); break;
    case Collective::Broadcast: broadcast(batch[0]); break;
    case Collective::Alltoall: alltoall(batch[0]); break;
    case Collective::Reducescatter: reducescatter(batch[0]); break;
    case Collective::Barrier: break;  // all ranks have submitted it, which is what it waits for
  }
  stream_->synchronize();
}

TensorView Operations::scratch(DType dtype, int64_t elements) {
  const size_t bytes = elements * size_of(dtype);
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return {scratch_.data(), dtype, Shape{elements}};
}

void Operations::reduce(TensorView data, std::span<const int64_t> counts, ReduceOp op) {
  if (op == ReduceOp::Sum || op == ReduceOp::Average)
    group_.all_reduce(data, comm::ReduceOp::Sum, *stream_);
  else if (op == ReduceOp::Max)
    group_.all_reduce(data, comm::ReduceOp::Max, *stream_);
  else
    reduce_in_slices(group_, data, counts, op, *stream_);
  stream_->synchronize();
}

void Operations::allreduce(std::span<const Item> batch, const std::vector<std::string>& rows) {
  const Request& first = batch[0].agreed->any();
  const DType wire = wire_dtype(first);
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const Item& item : batch) {
    counts.push_back(item.agreed->any().shape.elements());
    total += counts.back();
  }
  // One tensor that travels as it is needs no buffer.
  const bool direct = batch.size() == 1 && batch[0].mine && wire == first.dtype;
  const TensorView data = direct ? batch[0].mine->out.reshaped({total}) : scratch(wire, total);
  const std::vector<std::string> none, &copied = direct ? none : rows;
  {
    const TimelineSpan span(timeline_, copied, "MEMCPY_IN_FUSION_BUFFER");
    int64_t begin = 0;
    for (size_t i = 0; i < batch.size(); begin += counts[i++]) {
      const TensorView part = data.slice(begin, counts[i]);
      if (batch[i].mine)
        convert(batch[i].mine->in, part, before(batch[i].mine->request));
      else
        fill_neutral(part, first.op);
    }
  }
  {
    const TimelineSpan span(timeline_, rows, activity_of(first.op));
    reduce(data, counts, first.op);
  }
  const TimelineSpan span(timeline_, copied, "MEMCPY_OUT_FUSION_BUFFER");
  int64_t begin = 0;
  for (size_t i = 0; i < batch.size(); begin += counts[i++]) {
    if (!batch[i].mine) continue;
    const Scale scale = after(batch[i].mine->request, group_.size());
    if (!direct || !scale.none()) convert(data.slice(begin, counts[i]), batch[i].mine->out, scale);
  }
}

// Ranks may have different numbers of rows: each one's are padded to the largest number.
void Operations::allgather(const Item& item) {
  const Request& first = item.agreed->any();
  int64_t rows = 0, most = 0;
  for (const auto& request : item.agreed->by_rank) {
    rows += rows_of(request);
    most = std::max(most, rows_of(request));
  }
  const int64_t row = row_elements(first), padded = most * row;
  const TensorView buffer = scratch(first.dtype, (group_.size() + 1) * padded);
  const TensorView whole = buffer.slice(0, group_.size() * padded), own = buffer.slice(group_.size() * padded, padded);
  if (item.mine) convert(item.mine->in, own.slice(0, item.mine->in.elements()));
  group_.all_gather(own, whole, *stream_);
  stream_->synchronize();
  if (!item.mine) return;
  item.mine->result = Tensor(first.dtype, with_rows(first.shape, rows));
  int64_t begin = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const int64_t count = rows_of(item.agreed->by_rank[rank]) * row;
    convert(whole.slice(rank * padded, count), item.mine->result.view().slice(begin, count));
    begin += count;
  }
}

void Operations::broadcast(const Item& item) {
  const Request& first = item.agreed->any();
  if (!item.mine) return group_.broadcast(scratch(first.dtype, first.shape.elements()), first.root, *stream_);
  const TensorView out = item.mine->out;
  if (group_.rank() == first.root) convert(item.mine->in, out);
  group_.broadcast(out, first.root, *stream_);
}

void Operations::alltoall(const Item& item) {
  const Request& first = item.agreed->any();
  const int64_t row = row_elements(first);
  comm::ExchangeCounts counts;
  int64_t rows = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const int64_t received = item.agreed->by_rank[rank]->splits[group_.rank()];
    item.mine->received_splits.push_back(received);
    counts.sent.push_back(item.mine->request.splits[rank] * row);
    counts.received.push_back(received * row);
    rows += received;
  }
  item.mine->result = Tensor(first.dtype, with_rows(first.shape, rows));
  group_.all_to_all_v(item.mine->in, item.mine->result.view(), counts, *stream_);
}

// Each rank's rows are padded to the largest number of rows that a rank gets.
void Operations::reducescatter(const Item& item) {
  const Request& first = item.agreed->any();
  const int ranks = group_.size();
  const int64_t row = row_elements(first), padded = rows_of_rank(first.shape[0], 0, ranks) * row;
  const TensorView whole = scratch(wire_dtype(first), ranks * padded);
  fill_neutral(whole, ReduceOp::Sum);
  int64_t begin = 0;
  for (int rank = 0; rank < ranks && item.mine; ++rank) {
    const int64_t count = rows_of_rank(first.shape[0], rank, ranks) * row;
    convert(item.mine->in.slice(begin, count), whole.slice(rank * padded, count), before(first));
    begin += count;
  }
  const TensorView shard = whole.slice(group_.rank() * padded, padded);
  group_.reduce_scatter(whole, shard, comm::ReduceOp::Sum, *stream_);
  stream_->synchronize();
  if (!item.mine) return;
  const int64_t rows = rows_of_rank(first.shape[0], group_.rank(), ranks);
  item.mine->result = Tensor(first.dtype, with_rows(first.shape, rows));
  convert(shard.slice(0, rows * row), item.mine->result.view(), after(first, ranks));
}

}  // namespace trivet::hvd
