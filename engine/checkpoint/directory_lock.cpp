#include "engine/checkpoint/directory_lock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kStartOfJob = ", start ";

std::string holder_text(const CheckpointStoreOptions& options) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'?'};
  const std::string start =
      options.job.empty() ? "" : fmt::format("{}{} of job {}", kStartOfJob, options.start_of_job, options.job);
  return fmt::format("run {} (process {} on {}){}", options.run_id, ::getpid(), host.data(), start);
}

}  // namespace

void DirectoryLock::take() {
  const auto deadline = directory_.options.clock->now() + directory_.options.lock_patience;
  for (bool told = false;; told = true) {
    LockAttempt attempt = directory_.files.lock(directory_.path(kLock), holder_text(directory_.options));
    lock_ = std::move(attempt.lock);
    if (lock_) return;
    if (attempt.has_lapsed && is_of_earlier_start(attempt.holder)) {
      directory_.warn(
          fmt::format("{}: {} has given no sign of life for {} s; this later start of its job takes the directory over",
                      directory_.options.directory, escape_control(attempt.holder), kLockLease.count()));
      directory_.files.remove(directory_.path(kLock));
      continue;
    }
    const std::string others = fmt::format("{}: checkpoints of {} are being written here", directory_.options.directory,
                                           escape_control(attempt.holder));
    if (directory_.options.clock->now() >= deadline) give_up(attempt.holder, others);
    if (!told)
      directory_.warn(fmt::format("{}; waiting up to {:.3g} s for it to end", others,
                                  static_cast<double>(directory_.options.lock_patience.count()) / 1000));
    directory_.options.clock->sleep(kLockInterval);
  }
}

// An earlier start of this job will end or be ended, so the next start may succeed: Rendezvous, as for all ranks that a start
// waits for in vain.
void DirectoryLock::give_up(const std::string& holder, const std::string& others) const {
  if (is_of_earlier_start(holder))
    throw CheckpointError(ExitCode::Rendezvous,
                          fmt::format("{}; that is an earlier start of this job, which has not ended in {:.3g} s", others,
                                      static_cast<double>(directory_.options.lock_patience.count()) / 1000));
  throw_not_written(fmt::format("{}; choose another {} or end that run", others, directory_.key("directory")));
}

bool DirectoryLock::is_of_earlier_start(const std::string& holder) const {
  const size_t at = holder.rfind(kStartOfJob);
  if (directory_.options.job.empty() || at == std::string::npos) return false;
  std::istringstream words(holder.substr(at + kStartOfJob.size()));
  int64_t start = 0;
  std::string of, job, name;
  return words >> start >> of >> job >> name && name == directory_.options.job && start < directory_.options.start_of_job;
}

void DirectoryLock::require() const {
  if (lock_ && !lock_->holds())
    throw_not_written(fmt::format("{}: a later start of this job has taken the directory over; this one writes nothing more",
                                  directory_.options.directory));
}

}  // namespace trivet::checkpoint
