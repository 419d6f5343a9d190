#include "hvd/channel.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"
#include "hvd/agreement.h"
#include "hvd/fusion.h"

namespace trivet::hvd {
namespace {

std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// The header that ranks send before their news.
struct Header {
  int64_t bytes = 0, joined = 0, left = 0, stalled = 0;
};
constexpr const char* kLeft = "it left Horovod's interface without shutdown()";
constexpr int64_t kHeaderNumbers = sizeof(Header) / sizeof(int64_t);

}  // namespace

Channel::Channel(ChannelParts parts)
    : group_(std::move(parts.group)),
      world_ranks_(std::move(parts.world_ranks)),
      options_(parts.options),
      timeline_(parts.timeline),
      prefix_(parts.name.empty() ? "" : parts.name + "/"),
      abort_(std::move(parts.abort)),
      stream_(make_inline_stream()),
      operations_(*group_, timeline_, prefix_),
      table_(world_ranks_),
      writer_(options_.cache_capacity),
      readers_(world_ranks_.size(), RequestReader(options_.cache_capacity)),
      joined_(world_ranks_.size()),
      stalls_(options_.stall_check_time, options_.stall_shutdown_time) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "hvd");
    run();
  });
}

Channel::~Channel() {
  stop();
  thread_.join();
}

void Channel::stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  changed_.notify_all();
}

std::string Channel::next_name(Collective collective) {
  const std::lock_guard lock(mutex_);
  return fmt::format("{}.noname.{}", name_of(collective), ++names_given_[collective]);
}

std::vector<Handle> Channel::submit(std::vector<Submission> submissions) {
  std::vector<Handle> handles;
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (ended_ || leaving_) throw ConfigError("hvd: a tensor was submitted after shutdown()");
  std::set<std::string> names;
  for (const Submission& submission : submissions)
    if (const std::string& name = submission.request.name; in_flight_.contains(name) || !names.insert(name).second)
      throw ConfigError(
          fmt::format("hvd: {} of \"{}\": a tensor of that name is in flight on this rank; give it another name, or "
                      "call synchronize() first",
                      name_of(submission.request.collective), printable(name)));
  for (Submission& submission : submissions) handles.emplace_back(submission.promise.get_future(), submission.in_flight);
  in_flight_.merge(names);
  std::move(submissions.begin(), submissions.end(), std::back_inserter(queue_));
  changed_.notify_all();
  return handles;
}

std::future<int> Channel::join() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (join_) throw ConfigError("hvd: join() was called twice; wait for the first call");
  if (ended_ || leaving_) throw ConfigError("hvd: join() was called after shutdown()");
  join_.emplace();
  changed_.notify_all();
  return join_->get_future();
}

void Channel::leave() {
  const std::lock_guard lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
}

void Channel::shut_down() {
  leave();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Channel::run() noexcept {
  std::exception_ptr error;
  try {
    while (round()) {
    }
  } catch (const std::exception& failure) {
    error = std::current_exception();
    abort_(failure.what());  // has no effect if another rank was the first to fail
  }
  end(error);
}

bool Channel::busy() const { return !queue_.empty() || !told_.empty() || join_ || leaving_ || stop_; }

void Channel::wait_for_work() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, options_.idle_time, [&] { return busy(); });
  }
  std::this_thread::sleep_until(last_round_ + options_.cycle_time);
  last_round_ = std::chrono::steady_clock::now();
}

bool Channel::round() {
  wait_for_work();
  {
    const std::lock_guard lock(mutex_);
    if (stop_) throw CommError(ExitCode::PeerLost, kLeft);
  }
  const std::vector<News> all = exchange(take_news());
  bool all_left = true, stalled = false;
  for (int rank = 0; rank < size(); ++rank) {
    learn(rank, all[rank]);
    all_left = all_left && all[rank].left;
    stalled = stalled || all[rank].stalled;
  }
  execute(table_.take_ready());
  if (stalled) execute(table_.take_stalled());
  end_join_if_decided(all);
  warn_of_stalls();
  return !all_left;
}

Channel::News Channel::take_news() {
  News news;
  std::vector<Submission> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(queue_);
    news.joined = join_.has_value();
    news.left = leaving_;
  }
  for (Submission& submission : taken) {
    writer_.write(submission.request, news.requests);
    std::string name = submission.request.name;
    told_.emplace(std::move(name), std::move(submission));
  }
  news.stalled = stalls_.failed(table_.waiting(), now());
  return news;
}

std::vector<Channel::News> Channel::exchange(const News& mine) {
  std::vector<Header> headers(size());
  const Header own{.bytes = int64_t(mine.requests.size()), .joined = mine.joined, .left = mine.left, .stalled = mine.stalled};
  group_->all_gather({&own, DType::Int64, {kHeaderNumbers}}, {headers.data(), DType::Int64, {size() * kHeaderNumbers}},
                     *stream_);
  stream_->synchronize();
  int64_t most = 0;
  for (const Header& header : headers) most = std::max(most, header.bytes);
  std::string padded = mine.requests, gathered(size() * most, '\0');
  padded.resize(most);
  if (most > 0) {
    group_->all_gather({padded.data(), DType::UInt8, {most}}, {gathered.data(), DType::UInt8, {size() * most}}, *stream_);
    stream_->synchronize();
  }
  std::vector<News> all;
  for (int rank = 0; rank < size(); ++rank)
    all.push_back({.requests = gathered.substr(rank * most, headers[rank].bytes),
                   .joined = headers[rank].joined != 0,
                   .left = headers[rank].left != 0,
                   .stalled = headers[rank].stalled != 0});
  return all;
}

void Channel::learn(int rank, const News& news) {
  for (Request& request : readers_[rank].read(news.requests)) {
    const std::string row = prefix_ + request.name;
    const std::string activity = "NEGOTIATE_" + activity_of(request.collective);
    if (table_.add(rank, std::move(request), now())) timeline_.begin(row, activity);
    timeline_.mark(row, fmt::format("rank {}", world_ranks_[rank]));
  }
  if (news.left) table_.set_left(rank);
  if (!news.joined || joined_[rank]) return;
  joined_[rank] = true;
  last_joined_ = rank;
  table_.set_joined(rank);
}

// It is decided when all ranks have joined, or when one has left without joining, so that they never will.
void Channel::end_join_if_decided(const std::vector<News>& all) {
  std::vector<int> left;  // world ranks
  bool all_joined = true;
  for (int rank = 0; rank < size(); ++rank) {
    all_joined = all_joined && all[rank].joined;
    if (all[rank].left && !all[rank].joined) left.push_back(world_ranks_[rank]);
  }
  if (!all_joined && left.empty()) return;
  table_.end_join();
  std::fill(joined_.begin(), joined_.end(), false);
  std::optional<std::promise<int>> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(join_);
  }
  if (!done) return;
  if (left.empty())
    done->set_value(world_ranks_[last_joined_]);
  else
    done->set_exception(std::make_exception_ptr(CommError(
        ExitCode::RanksDisagree,
        fmt::format("hvd: join(): {} called shutdown() without join(); all ranks must call join()", ranks_text(left)))));
}

Submission* Channel::own(const Agreed& agreed) {
  const auto found = told_.find(agreed.name);
  return found == told_.end() ? nullptr : &found->second;
}

void Channel::execute(const std::vector<Agreed>& ready) {
  for (const Agreed& agreed : ready) timeline_.end(prefix_ + agreed.name);
  for (const std::vector<size_t>& batch : fuse(ready, options_.fusion_threshold_bytes)) {
    std::vector<Item> items;
    for (size_t i : batch) items.push_back({.agreed = &ready[i], .mine = own(ready[i])});
    if (ready[batch[0]].problem.empty()) operate(items);
    for (size_t i : batch) complete(ready[i]);
  }
}

// Nobody can take the tensors away while they are used.
void Channel::operate(const std::vector<Item>& batch) {
  std::vector<InFlight::Use> uses;
  for (const Item& item : batch) {
    if (!item.mine) continue;
    uses.emplace_back(item.mine->in_flight);
    if (!uses.back().granted())
      throw CommError(ExitCode::PeerLost,
                      fmt::format("hvd: {} of \"{}\": its handle was destroyed before synchronize(); wait for every handle",
                                  name_of(item.mine->request.collective), printable(item.agreed->name)));
  }
  operations_.run(batch);
}

void Channel::complete(const Agreed& agreed) {
  const auto found = told_.find(agreed.name);
  if (found == told_.end()) return;
  Submission submission = std::move(found->second);
  told_.erase(found);
  {
    const std::lock_guard lock(mutex_);
    in_flight_.erase(agreed.name);
  }
  if (agreed.problem.empty())
    submission.promise.set_value({std::move(submission.result), std::move(submission.received_splits)});
  else
    submission.promise.set_exception(std::make_exception_ptr(CommError(agreed.code, agreed.problem)));
}

void Channel::warn_of_stalls() {
  if (rank() != 0) return;
  const std::string line = stalls_.warning(table_.waiting(), now());
  if (line.empty()) return;
  if (options_.on_stall)
    options_.on_stall(line);
  else
    Log(world_ranks_[0]).warning(line);
}

void Channel::end(const std::exception_ptr& error) {
  std::vector<Submission> queued;
  std::optional<std::promise<int>> joining;
  {
    const std::lock_guard lock(mutex_);
    failure_ = error;
    queued.swap(queue_);
    joining.swap(join_);
    ended_ = true;
    changed_.notify_all();
  }
  // After the regular end there are none: every tensor has been run or refused.
  for (Submission& submission : queued) submission.promise.set_exception(error);
  for (auto& [name, submission] : told_) submission.promise.set_exception(error);
  told_.clear();
  if (joining) joining->set_exception(error);
}

}  // namespace trivet::hvd
