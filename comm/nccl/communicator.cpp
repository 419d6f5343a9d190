#include "comm/nccl/communicator.h"

#include <fmt/format.h>

#include <stdexcept>
#include <thread>

#include "comm/nccl/data_types.h"
#include "comm/nccl/watch.h"

namespace trivet::comm {
namespace {

using Clock = std::chrono::steady_clock;

// NCCL takes some microseconds to put work on a stream, and up to seconds to connect ranks.
void pause_since(Clock::time_point start) {
  if (Clock::now() - start < std::chrono::milliseconds(1)) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

// blocking = 0: a thread of NCCL does everything that waits for other ranks, including the first use of a connection, so that
// this thread can give up.
Communicator::Communicator(const RankInGroup& self, const ncclUniqueId& id, NcclWatch& watch,
                           const CommunicatorDeadlines& deadlines)
    : self_(self), watch_(watch), deadlines_(deadlines) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = self_.group.c_str();
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, self_.size(), id, self_.rank, &config);
  try {
    settle(fmt::format("creating a communicator of {} ranks", self_.size()), result, ExitCode::Rendezvous, deadlines_.join);
  } catch (...) {
    abort();
    throw;
  }
  watch_.add(*this);
}

Communicator::~Communicator() {
  watch_.remove(*this);
  abort();
}

void Communicator::run(const std::string& during, const Work& work) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (comm_) {
      ncclGroupStart();
      result = work(comm_);
      const ncclResult_t ended = ncclGroupEnd();
      if (!went_wrong(result)) result = ended;
    }
  }
  settle(during, result, ExitCode::PeerLost, deadlines_.operation);
}

void Communicator::settle(const std::string& during, ncclResult_t result, ExitCode code, std::chrono::milliseconds deadline) {
  const auto start = Clock::now();
  while (true) {
    if (went_wrong(result)) fail(during, result, code);
    result = state(during);
    if (result == ncclSuccess) return;
    if (result == ncclInProgress && Clock::now() - start > deadline)
      throw CommError(code == ExitCode::Rendezvous ? code : ExitCode::NoProgress,
                      fmt::format("{}{}: NCCL has not finished within {} s: a rank is missing, or NCCL cannot reach it; rerun "
                                  "with NCCL_DEBUG=INFO, and check NCCL_SOCKET_IFNAME",
                                  self_.prefix(), during, static_cast<double>(deadline.count()) / 1000));
    pause_since(start);
  }
}

ncclResult_t Communicator::state(const std::string& during) {
  watch_.check(self_, during);
  const std::lock_guard lock(mutex_);
  if (!comm_) {
    watch_.check(self_, during);  // the watch aborts after it has recorded why
    throw std::logic_error(self_.prefix() + during + ": the group has been closed");
  }
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void Communicator::fail(const std::string& during, ncclResult_t result, ExitCode code) {
  std::string detail;
  {
    const std::lock_guard lock(mutex_);
    detail = ncclGetLastError(comm_);
  }
  std::rethrow_exception(nccl_error(self_, during, result, detail, code));
}

void Communicator::close() {
  if (!comm_) return;
  ncclResult_t result;
  {
    const std::lock_guard lock(mutex_);
    result = ncclCommFinalize(comm_);
  }
  settle("close", result, ExitCode::PeerLost, deadlines_.operation);
  watch_.remove(*this);
  const std::lock_guard lock(mutex_);
  ncclCommDestroy(comm_);
  comm_ = nullptr;
}

void Communicator::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_) ncclCommAbort(comm_);
  comm_ = nullptr;
}

std::exception_ptr Communicator::failure() {
  const std::lock_guard lock(mutex_);
  if (!comm_) return nullptr;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) state = asked;
  if (!went_wrong(state)) return nullptr;
  return nccl_error(self_, "an operation on the device", state, ncclGetLastError(comm_), ExitCode::PeerLost);
}

}  // namespace trivet::comm
