#include "comm/nccl/watch.h"

#include <fmt/format.h>

#include <vector>

#include "comm/nccl/communicator.h"
#include "core/cuda/error.h"

namespace trivet::comm {
namespace {

// Removes the prefix from the text of a group's error: "comm: group "a" rank 0 (world rank 0, host b): lost ..." -> "lost ..."
std::string cause_of(const std::string& text) {
  const size_t end = text.find("): ");
  return end == std::string::npos ? text : text.substr(end + 3);
}

int current_device() {
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  return device;
}

}  // namespace

NcclWatch::NcclWatch(std::unique_ptr<ProcessGroup> peers, const WatchOptions& options)
    : peers_(std::move(peers)), options_(options), thread_([this, device = current_device()] { run(device); }) {}

NcclWatch::~NcclWatch() { stop(); }

void NcclWatch::stop() {
  {
    const std::lock_guard lock(failure_mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void NcclWatch::close() {
  {
    const std::lock_guard lock(failure_mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  check();
}

void NcclWatch::check(const RankInGroup& self, const std::string& during) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_ && !failure_of_peers_) std::rethrow_exception(failure_);
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const CommError& error) {
    throw CommError(error.exit_code(), fmt::format("{}{}: {}", self.prefix(), during, cause_of(error.what())));
  }
}

void NcclWatch::check() {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void NcclWatch::add(Communicator& communicator) {
  const std::lock_guard lock(members_mutex_);
  communicators_.insert(&communicator);
}

void NcclWatch::remove(Communicator& communicator) {
  const std::lock_guard lock(members_mutex_);
  communicators_.erase(&communicator);
}

void NcclWatch::add(UnderWay& operations) {
  const std::lock_guard lock(members_mutex_);
  operations_.insert(&operations);
}

void NcclWatch::remove(UnderWay& operations) {
  const std::lock_guard lock(members_mutex_);
  operations_.erase(&operations);
}

void NcclWatch::run(int device) {
  bool meeting = false;
  try {
    CUDA_CHECK(cudaSetDevice(device));
    while (true) {
      meeting = true;
      if (!meet()) return;
      meeting = false;
      look();
      std::unique_lock lock(failure_mutex_);
      changed_.wait_for(lock, options_.heartbeat, [&] { return closing_ || stopping_; });
      if (stopping_) return;
    }
  } catch (...) {
    give_up(std::current_exception(), meeting);
  }
}

// Returns false when all ranks are closing.
bool NcclWatch::meet() {
  int64_t closing = 0;
  {
    const std::lock_guard lock(failure_mutex_);
    closing = closing_ ? 1 : 0;
  }
  const auto inline_stream = make_inline_stream();
  peers_->all_reduce({&closing, DType::Int64, {1}}, ReduceOp::Sum, *inline_stream);
  return closing < peers_->size();
}

void NcclWatch::look() {
  const std::lock_guard lock(members_mutex_);
  for (Communicator* communicator : communicators_)
    if (auto failure = communicator->failure()) std::rethrow_exception(failure);
  for (UnderWay* operations : operations_)
    if (auto failure = operations->overdue(options_.operation_deadline)) std::rethrow_exception(failure);
}

// Runs each abort on its own thread, because it may wait for a kernel that is queued after one of another communicator.
void NcclWatch::give_up(std::exception_ptr reason, bool of_peers) {
  {
    const std::lock_guard lock(failure_mutex_);
    failure_ = std::move(reason);
    failure_of_peers_ = of_peers;
  }
  const std::lock_guard lock(members_mutex_);
  std::vector<std::thread> aborts;
  for (Communicator* communicator : communicators_) aborts.emplace_back([communicator] { communicator->abort(); });
  for (std::thread& thread : aborts) thread.join();
}

}  // namespace trivet::comm
