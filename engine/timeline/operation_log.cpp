#include "engine/timeline/operation_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace trivet::timeline {
namespace {

using comm::ExchangeCounts;
using comm::Operation;
using comm::ProcessGroup;
using comm::ReduceOp;

class LoggedGroup final : public ProcessGroup {
 public:
  LoggedGroup(std::unique_ptr<ProcessGroup> inner, OperationLog& log) : inner_(std::move(inner)), log_(log) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  comm::Traffic traffic() const override { return inner_->traffic(); }

  void all_reduce(TensorView data, ReduceOp op, Stream& stream) override {
    logged(Operation::AllReduce, data.bytes(), stream, [&] { inner_->all_reduce(data, op, stream); });
  }
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) override {
    logged(Operation::ReduceScatter, whole.bytes(), stream, [&] { inner_->reduce_scatter(whole, shard, op, stream); });
  }
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) override {
    logged(Operation::AllGather, whole.bytes(), stream, [&] { inner_->all_gather(shard, whole, stream); });
  }
  void broadcast(TensorView data, int root, Stream& stream) override {
    logged(Operation::Broadcast, data.bytes(), stream, [&] { inner_->broadcast(data, root, stream); });
  }
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) override {
    logged(Operation::AllToAll, in.bytes(), stream, [&] { inner_->all_to_all(in, out, stream); });
  }
  void all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream& stream) override {
    const int64_t elements = std::accumulate(counts.sent.begin(), counts.sent.end(), int64_t{0});
    logged(Operation::AllToAllV, elements * size_of(in.dtype), stream, [&] { inner_->all_to_all_v(in, out, counts, stream); });
  }
  void send(ConstTensorView data, int peer, Stream& stream) override {
    logged(Operation::Send, data.bytes(), stream, [&] { inner_->send(data, peer, stream); });
  }
  void receive(TensorView data, int peer, Stream& stream) override {
    logged(Operation::Receive, data.bytes(), stream, [&] { inner_->receive(data, peer, stream); });
  }
  void barrier(Stream& stream) override {
    logged(Operation::Barrier, 0, stream, [&] { inner_->barrier(stream); });
  }
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    std::unique_ptr<ProcessGroup> group = inner_->subgroup(ranks, name);
    return group ? make_logged_group(std::move(group), log_) : nullptr;
  }

 private:
  template <typename Call>
  void logged(Operation operation, int64_t bytes, Stream& stream, const Call& call) {
    if (!log_.logs(operation)) return call();
    const auto begin = std::make_shared<StreamClock::Moment>();
    stream.enqueue([this, begin] { *begin = log_.now(); });
    call();
    stream.enqueue([this, begin, operation, bytes] {
      log_.add({.operation = operation, .group = name(), .ranks = size(), .bytes = bytes}, *begin, log_.now());
    });
  }

  const std::unique_ptr<ProcessGroup> inner_;
  OperationLog& log_;
};

double gigabits_per_second(double bytes, double ms) { return ms > 0 ? bytes * 8 / (ms * 1e6) : 0; }

std::string size_text(int64_t bytes) {
  constexpr int64_t kKibi = 1 << 10, kMebi = 1 << 20;
  const auto size = static_cast<double>(bytes);
  if (bytes >= kMebi) return fmt::format("{:.2f} MiB", size / kMebi);
  return bytes >= kKibi ? fmt::format("{:.2f} KiB", size / kKibi) : fmt::format("{} B", bytes);
}

}  // namespace

double LoggedOperation::algorithm_bandwidth() const {
  return gigabits_per_second((operation == Operation::AllReduce ? 2.0 : 1.0) * static_cast<double>(bytes), ms);
}

double LoggedOperation::bus_bandwidth() const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::AllReduce: return gigabits_per_second(2 * others * static_cast<double>(bytes), ms);
    case Operation::ReduceScatter:
    case Operation::AllGather:
    case Operation::AllToAll:
    case Operation::AllToAllV: return gigabits_per_second(others * static_cast<double>(bytes), ms);
    case Operation::Broadcast:
    case Operation::Send:
    case Operation::Receive:
    case Operation::Barrier: return algorithm_bandwidth();
  }
  return 0;
}

OperationLog::OperationLog(std::unique_ptr<StreamClock> clock, std::set<Operation> operations)
    : clock_(std::move(clock)), operations_(std::move(operations)) {}

void OperationLog::add(const LoggedOperation& operation, StreamClock::Moment begin, StreamClock::Moment end) {
  std::lock_guard lock(mutex_);
  entries_.push_back({operation, begin, end});
}

std::vector<LoggedOperation> OperationLog::take() {
  std::lock_guard lock(mutex_);
  std::vector<LoggedOperation> operations;
  for (Entry& entry : entries_) {
    entry.operation.ms = clock_->milliseconds(entry.end) - clock_->milliseconds(entry.begin);
    operations.push_back(std::move(entry.operation));
  }
  entries_.clear();
  clock_->forget();
  return operations;
}

std::unique_ptr<ProcessGroup> make_logged_group(std::unique_ptr<ProcessGroup> group, OperationLog& log) {
  if (group->size() == 1) return group;
  return std::make_unique<LoggedGroup>(std::move(group), log);
}

void OperationTotals::add(const LoggedOperation& operation) {
  LoggedOperation kind = operation;
  if (!by_group_) kind.group.clear();
  const auto key = [](const LoggedOperation& one) { return std::tie(one.operation, one.group, one.ranks, one.bytes); };
  auto place = std::ranges::lower_bound(totals_, key(kind), {}, [&](const OperationTotal& total) { return key(total.sum); });
  if (place == totals_.end() || key(place->sum) != key(kind)) {
    kind.ms = 0;
    place = totals_.insert(place, {kind, 0});
  }
  place->sum.ms += operation.ms;
  ++place->count;
}

std::vector<std::string> table_of(const std::vector<OperationTotal>& totals) {
  constexpr const char* kRow = "{:<30} {:>5} {:>12} {:>8} {:>11} {:>10} {:>9} {:>9}";
  std::vector<std::string> lines{
      fmt::format(kRow, "operation", "ranks", "size", "count", "total ms", "mean ms", "alg Gb/s", "bus Gb/s")};
  for (const OperationTotal& total : totals) {
    LoggedOperation mean = total.sum;
    mean.ms /= static_cast<double>(total.count);
    lines.push_back(fmt::format(kRow, describe(mean), mean.ranks, size_text(mean.bytes), total.count,
                                fmt::format("{:.3f}", total.sum.ms), fmt::format("{:.4f}", mean.ms),
                                fmt::format("{:.3f}", mean.algorithm_bandwidth()),
                                fmt::format("{:.3f}", mean.bus_bandwidth())));
  }
  return lines;
}

std::string describe(const LoggedOperation& operation) {
  return std::string(name_of(operation.operation)) + (operation.group.empty() ? "" : " " + operation.group);
}

std::string line_of(const LoggedOperation& operation) {
  return fmt::format("{} of {} ranks, {}, {:.4f} ms, alg {:.3f} Gb/s, bus {:.3f} Gb/s", describe(operation), operation.ranks,
                     size_text(operation.bytes), operation.ms, operation.algorithm_bandwidth(), operation.bus_bandwidth());
}

}  // namespace trivet::timeline
