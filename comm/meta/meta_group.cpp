// Counts what a real group of this size would send, and moves nothing: views may have no data.
#include <algorithm>

#include "comm/arguments.h"
#include "comm/traffic.h"

namespace trivet::comm {
namespace {

class MetaGroup final : public ProcessGroup {
 public:
  MetaGroup(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  void all_reduce(TensorView data, ReduceOp op, Stream&) override { count(all_reduce_header(*this, data, op)); }
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream&) override {
    count(reduce_scatter_header(*this, whole, shard, op));
  }
  void all_gather(ConstTensorView shard, TensorView whole, Stream&) override { count(all_gather_header(*this, shard, whole)); }
  void broadcast(TensorView data, int root, Stream&) override { count(broadcast_header(*this, data, root)); }
  void all_to_all(ConstTensorView in, TensorView out, Stream&) override { count(all_to_all_header(*this, in, out)); }
  void all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream&) override {
    count(all_to_all_v_header(*this, in, out, counts));
    traffic_.bytes_sent += bytes_sent(counts, in.dtype, rank_);
  }
  void send(ConstTensorView data, int peer, Stream&) override { count(message_header(*this, Operation::Send, data, peer)); }
  void receive(TensorView data, int peer, Stream&) override { count(message_header(*this, Operation::Receive, data, peer)); }
  void barrier(Stream&) override { count({}); }

  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    check_members(*this, ranks, name);
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    if (place == ranks.end()) return nullptr;
    return make_meta_group(static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()), name);
  }
  Traffic traffic() const override { return traffic_; }

 private:
  void count(const OperationHeader& header) {
    traffic_.operations += 1;
    traffic_.bytes_sent += bytes_sent(header, rank_, size_);
  }

  int rank_, size_;
  std::string name_;
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_meta_group(int rank, int size, const std::string& name) {
  return std::make_unique<MetaGroup>(rank, size, name);
}

}  // namespace trivet::comm
