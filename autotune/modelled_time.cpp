#include "autotune/modelled_time.h"

#include <algorithm>
#include <cmath>

namespace trivet::autotune {
namespace {

using comm::Operation;
using comm::ReduceOp;

constexpr double kTicks = 1e9;  // per second; moments are whole numbers

class ModelledClock final : public StreamClock {
 public:
  explicit ModelledClock(const ModelledTime& time) : time_(time) {}
  Moment now() override { return std::llround(time_.now() * kTicks); }
  Moment turn(Moment, Moment) override { return now(); }  // the modelled time is already that of the stream
  double milliseconds(Moment moment) override { return static_cast<double>(moment) / kTicks * 1e3; }

 private:
  const ModelledTime& time_;
};

// A moment of a stream: whoever waits for it continues from there.
class ModelledEvent final : public Event::State {
 public:
  ModelledEvent(ModelledTime& time, double moment) : time_(time), moment_(moment) {}
  void synchronize() override {
    const auto from = observer_ ? observer_->now() : 0;
    time_.go_to(std::max(time_.now(), moment_));
    if (observer_) observer_->waited(from, observer_->now());
  }
  void observe(WaitObserver& observer) override { observer_ = &observer; }
  double moment() const { return moment_; }

 private:
  ModelledTime& time_;
  double moment_;
  WaitObserver* observer_ = nullptr;
};

// Runs its work at once, in time from when the stream is free; the caller then continues from where it was.
class ModelledStream final : public Stream {
 public:
  ModelledStream(ModelledTime& time, bool shares_cores) : time_(time), shares_cores_(shares_cores) {}
  void enqueue(std::function<void()> work) override {
    const double caller = time_.now(), begin = std::max(caller, free_);
    time_.go_to(begin);
    work();
    time_.pass(time_.costs().handover_seconds());
    free_ = time_.now();
    time_.go_to(caller + (shares_cores_ ? free_ - begin : 0));
  }
  Event record() override { return Event(std::make_shared<ModelledEvent>(time_, free_)); }
  void wait(const Event& event) override {
    if (const auto* state = dynamic_cast<const ModelledEvent*>(event.state())) free_ = std::max(free_, state->moment());
  }
  void synchronize() override { record().synchronize(); }

 private:
  ModelledTime& time_;
  bool shares_cores_;
  double free_ = 0;
};

class ModelledGroup final : public comm::ProcessGroup {
 public:
  ModelledGroup(ModelledTime& time, std::unique_ptr<ProcessGroup> meta) : time_(time), meta_(std::move(meta)) {}

  int rank() const override { return meta_->rank(); }
  int size() const override { return meta_->size(); }
  const std::string& name() const override { return meta_->name(); }
  comm::Traffic traffic() const override { return meta_->traffic(); }

  void all_reduce(TensorView data, ReduceOp op, Stream& stream) override {
    meta_->all_reduce(data, op, stream);
    take(stream, {Operation::AllReduce, op, data.dtype, data.bytes(), size()});
  }
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) override {
    meta_->reduce_scatter(whole, shard, op, stream);
    take(stream, {Operation::ReduceScatter, op, whole.dtype, whole.bytes(), size()});
  }
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) override {
    meta_->all_gather(shard, whole, stream);
    take(stream, {Operation::AllGather, ReduceOp::Sum, whole.dtype, whole.bytes(), size()});
  }
  void broadcast(TensorView data, int root, Stream& stream) override {
    meta_->broadcast(data, root, stream);
    take(stream, {Operation::Broadcast, ReduceOp::Sum, data.dtype, data.bytes(), size()});
  }
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) override {
    meta_->all_to_all(in, out, stream);
    take(stream, {Operation::AllToAll, ReduceOp::Sum, in.dtype, in.bytes(), size()});
  }
  void all_to_all_v(ConstTensorView in, TensorView out, const comm::ExchangeCounts& counts, Stream& stream) override {
    meta_->all_to_all_v(in, out, counts, stream);
    take(stream, {Operation::AllToAllV, ReduceOp::Sum, in.dtype, in.bytes(), size()});
  }
  void send(ConstTensorView data, int peer, Stream& stream) override {
    meta_->send(data, peer, stream);
    take(stream, {Operation::Send, ReduceOp::Sum, data.dtype, data.bytes(), size()});
  }
  void receive(TensorView data, int peer, Stream& stream) override {
    meta_->receive(data, peer, stream);
    take(stream, {Operation::Receive, ReduceOp::Sum, data.dtype, data.bytes(), size()});
  }
  void barrier(Stream& stream) override {
    meta_->barrier(stream);
    take(stream, {.ranks = size()});
  }
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    auto part = meta_->subgroup(ranks, name);
    return part ? time_.place(std::move(part)) : nullptr;
  }

 private:
  void take(Stream& stream, const OperationCall& call) {
    stream.enqueue([this, seconds = time_.costs().operation_seconds(call)] { time_.pass(seconds); });
  }

  ModelledTime& time_;
  std::unique_ptr<ProcessGroup> meta_;
};

}  // namespace

ModelledTime::ModelledTime(const CostModel& costs)
    : costs_(costs), meta_(kernels::make_meta_kernels()), kernels_(kernels::make_observed_kernels(*meta_, *this)) {}

std::unique_ptr<Stream> ModelledTime::make_stream(bool overlaps, bool shares_cores) {
  if (!overlaps) return make_inline_stream();
  return std::make_unique<ModelledStream>(*this, shares_cores && costs_.streams_share_cores());
}

std::unique_ptr<StreamClock> ModelledTime::make_clock() { return std::make_unique<ModelledClock>(*this); }

std::unique_ptr<comm::ProcessGroup> ModelledTime::place(std::unique_ptr<comm::ProcessGroup> meta) {
  return std::make_unique<ModelledGroup>(*this, std::move(meta));
}

}  // namespace trivet::autotune
