// Times the operations of groups (comms_logger). A logged group passes every operation on to another group, and has its stream
// report when the operation begins and ends.
//
//   OperationLog log(backend.make_clock());
//   auto group = make_logged_group(std::move(group), log);
//   ... operations ...
//   log.take();                                  // waits until they are done
//
// An operation begins when its stream gets there, so the time that it waits for other ranks counts. Groups may report from any
// thread that a stream runs on. The log must outlive its groups and their streams.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "core/stream_clock.h"

namespace trivet::timeline {

struct LoggedOperation {
  comm::Operation operation = comm::Operation::Barrier;
  std::string group;
  int ranks = 1;      // in the group
  int64_t bytes = 0;  // whole tensor: what all ranks together contribute to all_gather, what each has for all_reduce
  double ms = 0;

  // Gbit/s. The first is the bytes divided by the time, except that all_reduce counts them twice, as DeepSpeed does. The second
  // is what a rank sends in a ring, divided by the time, which is comparable with the speed of a link for all operations.
  double algorithm_bandwidth() const;
  double bus_bandwidth() const;
};

class OperationLog {
 public:
  // `operations`: those to log; empty: all.
  explicit OperationLog(std::unique_ptr<StreamClock> clock, std::set<comm::Operation> operations = {});

  bool logs(comm::Operation operation) const { return operations_.empty() || operations_.contains(operation); }
  StreamClock::Moment now() { return clock_->now(); }
  void add(const LoggedOperation& operation, StreamClock::Moment begin, StreamClock::Moment end);
  // Returns what was logged since the last call, in the order in which it ended. Waits until all of it is done.
  std::vector<LoggedOperation> take();

 private:
  struct Entry {
    LoggedOperation operation;
    StreamClock::Moment begin, end;
  };

  const std::unique_ptr<StreamClock> clock_;
  const std::set<comm::Operation> operations_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

// A group of one rank has nothing to log and is returned as it is.
std::unique_ptr<comm::ProcessGroup> make_logged_group(std::unique_ptr<comm::ProcessGroup> group, OperationLog& log);

// Operations of one kind and size, and if groups are told apart of one group.
struct OperationTotal {
  LoggedOperation sum;  // its time is that of all of them, its bytes are those of one
  int64_t count = 0;
};

class OperationTotals {
 public:
  explicit OperationTotals(bool by_group) : by_group_(by_group) {}
  void add(const LoggedOperation& operation);
  const std::vector<OperationTotal>& all() const { return totals_; }

 private:
  bool by_group_;
  std::vector<OperationTotal> totals_;  // by operation, group, ranks and bytes
};

// A table with one line for each of them: count, size, time and bandwidths. The first line names the columns.
std::vector<std::string> table_of(const std::vector<OperationTotal>& totals);
// "all_reduce data.reduce"; without a group only "all_reduce".
std::string describe(const LoggedOperation& operation);
// "all_reduce data.reduce of 4 ranks, 1.50 MiB, 0.2110 ms, alg 119.268 Gb/s, bus 89.451 Gb/s"
std::string line_of(const LoggedOperation& operation);

}  // namespace trivet::timeline
