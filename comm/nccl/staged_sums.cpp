#include "comm/nccl/staged_sums.h"

#include <algorithm>

#include "comm/nccl/data_types.h"
#include "core/cuda/error.h"

namespace trivet::comm {
namespace {

constexpr int64_t kAligned = 16;  // bytes: pieces are aligned to this if the tensor is

int64_t round_down(int64_t count, int64_t to) { return count / to * to; }
int64_t round_up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

}  // namespace

StagedSums::StagedSums(Communicator& communicator, NcclResources& resources)
    : communicator_(communicator), resources_(resources) {}

void StagedSums::all_reduce(const std::string& during, TensorView data, ReduceOp op, cudaStream_t stream) {
  run(during, rounds_of_all_reduce(data), data.dtype, op, stream);
}

void StagedSums::reduce_scatter(const std::string& during, ConstTensorView whole, TensorView shard, ReduceOp op,
                                cudaStream_t stream) {
  run(during, rounds_of_reduce_scatter(whole, shard), shard.dtype, op, stream);
}

// The largest number of elements in a piece: half of the staging memory holds one piece from each other rank.
int64_t StagedSums::most_elements(DType dtype) const {
  const int64_t bytes = resources_.options().staging_bytes / 2 / (communicator_.self().size() - 1);
  return std::max(round_down(bytes, kAligned), kAligned) / size_of(dtype);
}

// Divides the tensor into equal aligned pieces. Every rank sums the remainder of less than ranks x 16 bytes, or a small tensor.
std::vector<StagedSums::Round> StagedSums::rounds_of_all_reduce(TensorView data) const {
  const int64_t ranks = communicator_.self().size(), total = data.elements();
  auto* const bytes = static_cast<std::byte*>(data.data);
  const int64_t aligned = kAligned / size_of(data.dtype), most = most_elements(data.dtype);
  std::vector<Round> rounds;
  int64_t first = 0;
  if (data.bytes() > resources_.options().one_exchange_bytes)
    while (total - first >= ranks * aligned) {
      const int64_t count = std::min(most, round_down((total - first) / ranks, aligned));
      rounds.push_back({.from = bytes, .to = bytes, .first = first, .stride = count, .count = count, .gathers = true});
      first += ranks * count;
    }
  while (first < total) {
    const int64_t count = std::min(most, total - first);
    rounds.push_back({.from = bytes, .to = bytes, .first = first, .stride = 0, .count = count});
    first += count;
  }
  return rounds;
}

std::vector<StagedSums::Round> StagedSums::rounds_of_reduce_scatter(ConstTensorView whole, TensorView shard) const {
  const int64_t total = shard.elements(), most = most_elements(shard.dtype), element = size_of(shard.dtype);
  std::vector<Round> rounds;
  for (int64_t first = 0; first < total; first += most)
    rounds.push_back({.from = static_cast<const std::byte*>(whole.data),
                      .to = static_cast<std::byte*>(shard.data) - communicator_.self().rank * total * element,
                      .first = first,
                      .stride = total,
                      .count = std::min(most, total - first)});
  return rounds;
}

void StagedSums::run(const std::string& during, const std::vector<Round>& rounds, DType dtype, ReduceOp op,
                     cudaStream_t stream) {
  if (staging_.empty()) staging_ = resources_.buffer(nccl_staging_bytes(communicator_.self().size(), resources_.options()));
  if (rounds.size() == 1) {
    exchange(during, rounds[0], dtype, half(0), stream);
    sum(rounds[0], dtype, op, half(0), stream);
    return gather(during, rounds[0], dtype, stream);
  }
  if (!sides_) sides_.emplace(Sides{make_stream_handle(), make_event_handle(), make_event_handle()});
  const auto finish = [&](size_t round) {
    CUDA_CHECK(cudaStreamWaitEvent(stream, sides_->summed.get(), 0));
    gather(during, rounds[round], dtype, stream);
  };
  for (size_t round = 0; round < rounds.size(); ++round) {
    exchange(during, rounds[round], dtype, half(round), stream);
    CUDA_CHECK(cudaEventRecord(sides_->received.get(), stream));
    if (round > 0) finish(round - 1);
    CUDA_CHECK(cudaStreamWaitEvent(sides_->sums.get(), sides_->received.get(), 0));
    sum(rounds[round], dtype, op, half(round), sides_->sums.get());
    CUDA_CHECK(cudaEventRecord(sides_->summed.get(), sides_->sums.get()));
  }
  finish(rounds.size() - 1);
}

std::byte* StagedSums::half(size_t round) {
  return static_cast<std::byte*>(staging_.view().data) + (round % 2) * static_cast<size_t>(staging_.view().bytes() / 2);
}

namespace {

// Distance in elements between the pieces in a half, which has no place for this rank's own piece.
int64_t slot_stride(int64_t count, DType dtype) { return round_up(count, kAligned / size_of(dtype)); }

}  // namespace

void StagedSums::exchange(const std::string& during, const Round& round, DType dtype, std::byte* half, cudaStream_t stream) {
  const RankInGroup& self = communicator_.self();
  const int64_t element = size_of(dtype), slot = slot_stride(round.count, dtype) * element;
  communicator_.run(during, [&](ncclComm_t comm) {
    for (int step = 1; step < self.size(); ++step) {
      const int to = (self.rank + step) % self.size(), from = (self.rank + self.size() - step) % self.size();
      const std::byte* piece = round.from + (round.first + to * round.stride) * element;
      const auto count = static_cast<size_t>(round.count);
      const ncclResult_t sent = ncclSend(piece, count, nccl_type(dtype), to, comm, stream);
      if (went_wrong(sent)) return sent;
      std::byte* place = half + (from < self.rank ? from : from - 1) * slot;
      const ncclResult_t received = ncclRecv(place, count, nccl_type(dtype), from, comm, stream);
      if (went_wrong(received)) return received;
    }
    return ncclSuccess;
  });
}

void StagedSums::sum(const Round& round, DType dtype, ReduceOp op, const std::byte* half, cudaStream_t stream) {
  const RankInGroup& self = communicator_.self();
  const int64_t own = (round.first + self.rank * round.stride) * size_of(dtype);
  rank_sum({.dtype = dtype,
            .op = op,
            .received = half,
            .stride = slot_stride(round.count, dtype),
            .own = round.from + own,
            .out = round.to + own,
            .count = round.count,
            .rank = self.rank,
            .ranks = self.size()},
           2 * resources_.multiprocessors(), stream);
}

void StagedSums::gather(const std::string& during, const Round& round, DType dtype, cudaStream_t stream) {
  if (!round.gathers) return;
  std::byte* whole = round.to + round.first * size_of(dtype);
  const std::byte* own = whole + communicator_.self().rank * round.count * size_of(dtype);
  communicator_.run(during, [&](ncclComm_t comm) {
    return ncclAllGather(own, whole, static_cast<size_t>(round.count), nccl_type(dtype), comm, stream);
  });
}

}  // namespace trivet::comm
