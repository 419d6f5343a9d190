#include "core/folder_claim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace trivet {
namespace {

std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'?'};
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

}  // namespace

FolderClaim::FolderClaim(FileSystem& files, const std::string& folder)
    : files_(files), path_(fmt::format("{}/{}", folder, kClaimName)) {
  try {
    LockAttempt attempt = files_.lock(path_, this_process());
    lock_ = std::move(attempt.lock);
    if (!lock_) other_ = attempt.holder.empty() ? "another process" : attempt.holder;
  } catch (const FileError& error) {
    if (error.error_number() != ENOLCK && error.error_number() != ENOSYS && error.error_number() != EOPNOTSUPP) throw;
  }
}

// Removes the file while it is locked: whoever waits to lock it sees that it has gone, and makes a new one.
FolderClaim::~FolderClaim() {
  if (!other_.empty()) return;
  try {
    files_.remove(path_);
  } catch (const FileError&) {
    return;  // nothing depends on it: a file without a lock claims nothing
  }
}

}  // namespace trivet
