// The group of one: every operation is a copy, or nothing.
#include <cstring>
#include <stdexcept>

#include "comm/arguments.h"
#include "comm/process_group.h"

namespace trivet::comm {
namespace {

class SingleGroup final : public ProcessGroup {
 public:
  SingleGroup(std::string name, CopyTensor copy) : name_(std::move(name)), copy_(std::move(copy)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }

  void all_reduce(TensorView data, ReduceOp op, Stream&) override { count(all_reduce_header(*this, data, op)); }
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) override {
    count(reduce_scatter_header(*this, whole, shard, op));
    copy(whole, shard, stream);
  }
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) override {
    count(all_gather_header(*this, shard, whole));
    copy(shard, whole, stream);
  }
  void broadcast(TensorView data, int root, Stream&) override { count(broadcast_header(*this, data, root)); }
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) override {
    count(all_to_all_header(*this, in, out));
    copy(in, out, stream);
  }
  void all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream& stream) override {
    count(all_to_all_v_header(*this, in, out, counts));
    copy(in, out, stream);
  }
  void send(ConstTensorView data, int peer, Stream&) override { count(message_header(*this, Operation::Send, data, peer)); }
  void receive(TensorView data, int peer, Stream&) override { count(message_header(*this, Operation::Receive, data, peer)); }
  void barrier(Stream&) override { count({}); }

  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    check_members(*this, ranks, name);
    return make_single_group(name, copy_);
  }
  Traffic traffic() const override { return traffic_; }

 private:
  void count(const OperationHeader&) { traffic_.operations += 1; }
  void copy(ConstTensorView from, TensorView to, Stream& stream) const {
    if (from.data == to.data || from.elements() == 0) return;
    stream.enqueue([from, to, this] { copy_(from, to); });
  }

  std::string name_;
  CopyTensor copy_;
  Traffic traffic_;
};

void copy_in_host_memory(ConstTensorView from, TensorView to) { std::memcpy(to.data, from.data, from.bytes()); }

}  // namespace

std::unique_ptr<ProcessGroup> make_single_group(const std::string& name, CopyTensor copy) {
  return std::make_unique<SingleGroup>(name, copy ? std::move(copy) : copy_in_host_memory);
}

}  // namespace trivet::comm
