#include "comm/shm/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/descriptor.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

[[noreturn]] void fail(const std::string& name, const char* what, int error) {
  throw CommError(ExitCode::Rendezvous, fmt::format("comm: shared memory {}: {}: {}", name, what, std::strerror(error)));
}

[[noreturn]] void fail_full(const std::string& name, int64_t bytes) {
  throw OutOfMemoryError(fmt::format(
      "comm: shared memory {}: /dev/shm does not have {:.1f} MiB left; enlarge it (mount -o remount,size=1G /dev/shm, or "
      "docker run --shm-size=1g) or start fewer ranks",
      name, static_cast<double>(bytes) / (1 << 20)));
}

std::shared_ptr<std::byte> map(const std::string& name, int descriptor, int64_t bytes) {
  const size_t size = bytes;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED && errno == ENOMEM)
    throw OutOfMemoryError(
        fmt::format("comm: shared memory {}: {:.1f} MiB cannot be mapped: the machine, or a limit "
                    "(ulimit -v, a cgroup), has no memory left",
                    name, static_cast<double>(bytes) / (1 << 20)));
  if (memory == MAP_FAILED) fail(name, "cannot be mapped", errno);
  return {static_cast<std::byte*>(memory), [size](std::byte* data) { munmap(data, size); }};
}

}  // namespace

std::shared_ptr<std::byte> create_segment(const std::string& name, int64_t bytes) {
  const Descriptor file(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (file.number() < 0) fail(name, "cannot be created", errno);
  const int error = posix_fallocate(file.number(), 0, bytes);
  if (error == 0) return map(name, file.number(), bytes);
  unlink_segment(name);
  if (error == ENOSPC || error == ENOMEM) fail_full(name, bytes);
  if (error == EFBIG)
    throw OutOfMemoryError(
        fmt::format("comm: shared memory {}: {:.1f} MiB are more than the limit of the size of files; raise it "
                    "(ulimit -f)",
                    name, static_cast<double>(bytes) / (1 << 20)));
  fail(name, "cannot be enlarged", error);
}

std::shared_ptr<std::byte> attach_segment(const std::string& name, int64_t bytes) {
  const Descriptor file(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (file.number() < 0) fail(name, "cannot be opened", errno);
  struct stat status {};
  if (fstat(file.number(), &status) != 0) fail(name, "cannot be examined", errno);
  if (status.st_uid != geteuid()) fail(name, "belongs to another user", EPERM);
  if (status.st_size < bytes) fail(name, "is smaller than it should be: the ranks run different builds or arguments", EINVAL);
  return map(name, file.number(), bytes);
}

void unlink_segment(const std::string& name) noexcept { shm_unlink(name.c_str()); }

}  // namespace trivet::comm
