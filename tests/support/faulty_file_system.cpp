#include "tests/support/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace trivet::support {
namespace {

class FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(FaultyFileSystem& files, std::unique_ptr<WritableFile> inner, std::string path)
      : files_(files), inner_(std::move(inner)), path_(std::move(path)) {}

  size_t write_some(std::span<const std::byte> data) override {
    const size_t allowed = files_.enter("write", path_, true, data.size());
    const size_t written = allowed == 0 ? 0 : inner_->write_some(data.first(allowed));
    if (files_.stopped_mid_write()) throw Stopped{};
    return written;
  }
  void sync() override {
    files_.enter("fsync", path_, true);
    inner_->sync();
  }
  void close() override {
    files_.enter("close", path_, true);
    inner_->close();
  }

 private:
  FaultyFileSystem& files_;
  std::unique_ptr<WritableFile> inner_;
  std::string path_;
};

class FaultyReadableFile final : public ReadableFile {
 public:
  FaultyReadableFile(FaultyFileSystem& files, std::unique_ptr<ReadableFile> inner) : files_(files), inner_(std::move(inner)) {}
  const std::string& path() const override { return inner_->path(); }
  int64_t size() const override { return inner_->size(); }
  size_t read_some(int64_t offset, std::span<std::byte> out) const override {
    return inner_->read_some(offset, out.first(files_.enter("read", path(), false, out.size())));
  }

 private:
  FaultyFileSystem& files_;
  std::unique_ptr<ReadableFile> inner_;
};

class FaultyScratchFile final : public ScratchFile {
 public:
  FaultyScratchFile(FaultyFileSystem& files, std::unique_ptr<ScratchFile> inner) : files_(files), inner_(std::move(inner)) {}
  const std::string& path() const override { return inner_->path(); }
  bool direct() const override { return inner_->direct(); }
  // An uncached file transfers only multiples of kDirectAlignment, so a short transfer is rounded down to such a multiple.
  size_t read_some(int64_t offset, std::span<std::byte> out) const override {
    const size_t allowed = files_.enter("read", path(), false, out.size());
    if (moved(allowed) > 0) inner_->read_some(offset, out.first(moved(allowed)));
    return allowed;
  }
  size_t write_some(int64_t offset, std::span<const std::byte> data) override {
    const size_t allowed = files_.enter("write", path(), true, data.size());
    if (moved(allowed) > 0) inner_->write_some(offset, data.first(moved(allowed)));
    return allowed;
  }

 private:
  size_t moved(size_t bytes) const { return direct() ? bytes / kDirectAlignment * kDirectAlignment : bytes; }

  FaultyFileSystem& files_;
  std::unique_ptr<ScratchFile> inner_;
};

}  // namespace

size_t FaultyFileSystem::enter(const char* operation, const std::string& path, bool needs_space, size_t bytes) {
  const int64_t number = ++count_;
  if (fault_ == Fault::None || number < call_) return bytes;
  const bool now = number == call_;
  switch (fault_) {
    case Fault::StopMidWrite:
      if (!now || bytes == 0 || !needs_space) throw Stopped{};
      mid_write_ = true;
      return bytes / 2;
    case Fault::Stop: throw Stopped{};
    case Fault::NoSpace:
      if (now) throw FileError(operation, path, ENOSPC);
      return bytes;
    case Fault::DiskFull:
      if (needs_space) throw FileError(operation, path, ENOSPC);
      return bytes;
    case Fault::SlowWrites:
      if (needs_space) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return bytes;
    case Fault::IoError:
      if (now) throw FileError(operation, path, EIO);
      return bytes;
    default: return now ? std::max<size_t>(std::min<size_t>(bytes, 1), bytes / 2) : bytes;
  }
}

std::unique_ptr<WritableFile> FaultyFileSystem::create(const std::string& path, int64_t reserve_bytes) {
  enter("create", path, true);
  return std::make_unique<FaultyWritableFile>(*this, inner_.create(path, reserve_bytes), path);
}

std::unique_ptr<ReadableFile> FaultyFileSystem::open(const std::string& path) {
  enter("open", path, false);
  return std::make_unique<FaultyReadableFile>(*this, inner_.open(path));
}

void FaultyFileSystem::create_directory(const std::string& path) {
  enter("create directory", path, true);
  inner_.create_directory(path);
}

void FaultyFileSystem::sync_directory(const std::string& path) {
  enter("fsync directory", path, true);
  inner_.sync_directory(path);
}

void FaultyFileSystem::rename(const std::string& from, const std::string& to) {
  enter("rename", from, false);
  inner_.rename(from, to);
}

void FaultyFileSystem::remove(const std::string& path) {
  enter("remove", path, false);
  inner_.remove(path);
}

std::vector<DirectoryEntry> FaultyFileSystem::list(const std::string& path) {
  enter("list", path, false);
  return inner_.list(path);
}

EntryKind FaultyFileSystem::kind(const std::string& path) {
  enter("stat", path, false);
  return inner_.kind(path);
}

LockAttempt FaultyFileSystem::lock(const std::string& path, const std::string& holder) {
  enter("lock", path, false);
  return inner_.lock(path, holder);
}

int64_t FaultyFileSystem::free_bytes(const std::string& path) {
  enter("statvfs", path, false);
  return inner_.free_bytes(path);
}

std::unique_ptr<ScratchFile> FaultyFileSystem::create_scratch(const std::string& path, int64_t bytes, bool direct) {
  enter("create", path, true);
  return std::make_unique<FaultyScratchFile>(*this, inner_.create_scratch(path, bytes, direct));
}

}  // namespace trivet::support
