// The background thread of one process set on one rank: it learns what all ranks have submitted, and runs what is ready.
//
//   submit() -> queue -> [round: tell the others, learn theirs -> RequestTable -> fuse -> Operations] -> Handle
//
// All ranks of the set run the same rounds: each is an all_gather of what is new. A rank that has nothing to say comes at least
// every Options::idle_time, so a wait for a rank that computes costs no processor time. A rank that waits for a tensor begins
// the next round after Options::cycle_time; tensors submitted meanwhile are told together, and fused.
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hvd/operations.h"
#include "hvd/options.h"
#include "hvd/request_stream.h"
#include "hvd/request_table.h"
#include "hvd/stall_check.h"
#include "hvd/timeline.h"

namespace trivet::hvd {

struct ChannelParts {
  std::unique_ptr<comm::ProcessGroup> group;
  std::vector<int> world_ranks;
  const Options& options;
  Timeline& timeline;                                    // must outlive the channel
  std::string name;                                      // begins the set's rows in the timeline; the set of all ranks has none
  std::function<void(const std::string& reason)> abort;  // tells the other ranks that this one's thread has failed
};

class Channel {
 public:
  explicit Channel(ChannelParts parts);
  // Waits until the thread has ended. After an error, or without shut_down(), the world must have been aborted before.
  ~Channel();

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // The tensors are told to the other ranks together. Throws ConfigError if one of that name is still in flight here, and what
  // has ended the thread, if it has ended.
  std::vector<Handle> submit(std::vector<Submission> submissions);
  // This rank contributes nothing until all ranks have joined. The future has the world rank of the last one, or a CommError
  // (RanksDisagree) if a rank leaves without joining.
  std::future<int> join();
  // Says that this rank submits nothing more. Requests that others then submit alone fail, and so do joins.
  void leave();
  // leave(), and the regular end, which all ranks reach together. Throws what has ended the thread, if it was something else.
  void shut_down();
  // The thread ends after its present round, or when the world is aborted.
  void stop();
  // A name for a tensor without one: "allreduce.noname.1".
  std::string next_name(Collective collective);

 private:
  // The message of a rank to the others in a round.
  struct News {
    std::string requests;
    bool joined = false, left = false, stalled = false;
  };

  void run() noexcept;
  bool round();  // false: all ranks have left
  void wait_for_work();
  bool busy() const;
  News take_news();
  std::vector<News> exchange(const News& mine);
  void learn(int rank, const News& news);
  void end_join_if_decided(const std::vector<News>& all);
  void execute(const std::vector<Agreed>& ready);
  void operate(const std::vector<Item>& batch);
  Submission* own(const Agreed& agreed);
  void complete(const Agreed& agreed);
  void warn_of_stalls();
  void end(const std::exception_ptr& error);  // null: the regular end

  std::unique_ptr<comm::ProcessGroup> group_;
  const std::vector<int> world_ranks_;
  const Options options_;
  Timeline& timeline_;
  const std::string prefix_;
  const std::function<void(const std::string& reason)> abort_;

  std::mutex mutex_;  // the next group of members
  std::condition_variable changed_;
  std::vector<Submission> queue_;  // not yet told to the others
  std::set<std::string> in_flight_;
  std::optional<std::promise<int>> join_;
  bool leaving_ = false, stop_ = false, ended_ = false;
  std::exception_ptr failure_;
  std::map<Collective, int64_t> names_given_;

  // Members that only the thread uses.
  std::unique_ptr<Stream> stream_;
  Operations operations_;
  RequestTable table_;
  RequestWriter writer_;
  std::vector<RequestReader> readers_;      // one for each rank
  std::map<std::string, Submission> told_;  // requests that this rank has told and has not run
  std::vector<bool> joined_;                // by rank
  int last_joined_ = -1;
  StallCheck stalls_;
  std::chrono::steady_clock::time_point last_round_;

  std::thread thread_;
};

}  // namespace trivet::hvd
