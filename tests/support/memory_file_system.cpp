#include "tests/support/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <random>

namespace trivet::support {

struct MemoryFileSystem::Node {
  EntryKind kind = EntryKind::File;
  std::string bytes, durable_bytes;
  Entries entries;
  std::vector<Entries> history{{}};  // the durable entries, then every state since
  std::weak_ptr<int> held;           // the lock, while someone holds it
};

namespace {

using Node = MemoryFileSystem::Node;

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

int64_t bytes_in(const Node& node) {
  auto bytes = static_cast<int64_t>(node.bytes.size());
  for (const auto& [name, child] : node.entries) bytes += bytes_in(*child);
  return bytes;
}

class MemoryWritableFile final : public WritableFile {
 public:
  // `check_room` throws if there is no room for that many bytes more.
  MemoryWritableFile(std::mutex& mutex, std::shared_ptr<Node> node, std::function<void(size_t)> check_room)
      : mutex_(mutex), node_(std::move(node)), check_room_(std::move(check_room)) {}
  size_t write_some(std::span<const std::byte> data) override {
    const std::scoped_lock lock(mutex_);
    check_room_(data.size());
    node_->bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
    return data.size();
  }
  void sync() override {
    const std::scoped_lock lock(mutex_);
    node_->durable_bytes = node_->bytes;
  }
  void close() override {}

 private:
  std::mutex& mutex_;
  std::shared_ptr<Node> node_;
  std::function<void(size_t)> check_room_;
};

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(std::mutex& mutex, std::shared_ptr<Node> node, std::string path)
      : mutex_(mutex), node_(std::move(node)), path_(std::move(path)) {}
  const std::string& path() const override { return path_; }
  int64_t size() const override {
    const std::scoped_lock lock(mutex_);
    return static_cast<int64_t>(node_->bytes.size());
  }
  size_t read_some(int64_t offset, std::span<std::byte> out) const override {
    const std::scoped_lock lock(mutex_);
    const auto begin = std::min(static_cast<size_t>(offset), node_->bytes.size());
    const size_t count = std::min(out.size(), node_->bytes.size() - begin);
    std::memcpy(out.data(), node_->bytes.data() + begin, count);
    return count;
  }

 private:
  std::mutex& mutex_;
  std::shared_ptr<Node> node_;
  std::string path_;
};

class MemoryScratchFile final : public ScratchFile {
 public:
  MemoryScratchFile(std::string path, int64_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  const std::string& path() const override { return path_; }
  bool direct() const override { return false; }
  size_t read_some(int64_t offset, std::span<std::byte> out) const override {
    const std::scoped_lock lock(mutex_);
    const size_t begin = std::min(static_cast<size_t>(offset), bytes_.size());
    const size_t count = std::min(out.size(), bytes_.size() - begin);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin), count, out.begin());
    return count;
  }
  size_t write_some(int64_t offset, std::span<const std::byte> data) override {
    const std::scoped_lock lock(mutex_);
    bytes_.resize(std::max(bytes_.size(), static_cast<size_t>(offset) + data.size()));
    std::copy(data.begin(), data.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
    return data.size();
  }

 private:
  std::string path_;
  mutable std::mutex mutex_;
  std::vector<std::byte> bytes_;
};

class MemoryFileLock final : public FileLock {
 public:
  explicit MemoryFileLock(std::shared_ptr<int> held) : held_(std::move(held)) {}

 private:
  std::shared_ptr<int> held_;
};

void lose_bytes(Node& file, PowerLoss loss, std::mt19937_64& random) {
  const uint64_t choice = loss == PowerLoss::Random ? random() % 3 : loss == PowerLoss::KeepBytes ? 1 : 0;
  if (choice == 0) file.bytes = file.durable_bytes;
  if (choice == 2 && file.bytes != file.durable_bytes) {  // torn: a first part reached the disk, the rest reads as zeros
    const size_t kept = random() % (file.bytes.size() + 1);
    std::fill(file.bytes.begin() + static_cast<std::ptrdiff_t>(kept), file.bytes.end(), '\0');
  }
  file.durable_bytes = file.bytes;
}

void lose(Node& node, PowerLoss loss, std::mt19937_64& random) {
  if (node.kind != EntryKind::Directory) return lose_bytes(node, loss, random);
  const size_t last = node.history.size() - 1;
  const size_t kept = loss == PowerLoss::Random ? random() % (last + 1) : loss == PowerLoss::KeepEntries ? last : 0;
  node.entries = node.history[kept];
  node.history = {node.entries};
  for (const auto& [name, child] : node.entries) lose(*child, loss, random);
}

}  // namespace

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) { root_->kind = EntryKind::Directory; }

int64_t MemoryFileSystem::used_bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_in(*root_);
}

std::shared_ptr<Node> MemoryFileSystem::find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (size_t at = 0; node && at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end > at && path.compare(at, end - at, ".") != 0) {
      const auto found = node->entries.find(path.substr(at, end - at));
      node = found == node->entries.end() ? nullptr : found->second;
    }
    at = end + 1;
  }
  return node;
}

Node& MemoryFileSystem::parent(const char* operation, const std::string& path) const {
  const auto node = find(parent_of(path));
  if (!node || node->kind != EntryKind::Directory) throw FileError(operation, path, ENOENT);
  return *node;
}

void MemoryFileSystem::changed(Node& directory) { directory.history.push_back(directory.entries); }

std::unique_ptr<WritableFile> MemoryFileSystem::create(const std::string& path, int64_t) {
  const std::scoped_lock lock(mutex_);
  Node& directory = parent("create", path);
  auto& node = directory.entries[name_of(path)];
  if (node && node->kind == EntryKind::Directory) throw FileError("create", path, EISDIR);
  if (!node) {
    node = std::make_shared<Node>();
    changed(directory);
  }
  node->bytes.clear();
  return std::make_unique<MemoryWritableFile>(mutex_, node, [this, path](size_t more) {
    if (bytes_in(*root_) + static_cast<int64_t>(more) > limit_) throw FileError("write", path, ENOSPC);
  });
}

std::unique_ptr<ReadableFile> MemoryFileSystem::open(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const auto node = find(path);
  if (!node || node->kind != EntryKind::File) throw FileError("open", path, node ? EISDIR : ENOENT);
  return std::make_unique<MemoryReadableFile>(mutex_, node, path);
}

void MemoryFileSystem::create_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  Node& directory = parent("create directory", path);
  auto& node = directory.entries[name_of(path)];
  if (node && node->kind == EntryKind::Directory) return;
  if (node) throw FileError("create directory", path, EEXIST);
  node = std::make_shared<Node>();
  node->kind = EntryKind::Directory;
  changed(directory);
}

void MemoryFileSystem::sync_directory(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const auto node = find(path);
  if (!node) throw FileError("fsync directory", path, ENOENT);
  node->history = {node->entries};
}

void MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  const std::scoped_lock lock(mutex_);
  Node& directory = parent("rename", from);
  if (&directory != &parent("rename", to)) throw FileError("rename", from, EXDEV);  // never needed, and not modelled
  const auto node = find(from), target = find(to);
  if (!node) throw FileError("rename", from, ENOENT);
  if (target && target->kind == EntryKind::Directory && !target->entries.empty()) throw FileError("rename", to, ENOTEMPTY);
  directory.entries.erase(name_of(from));
  directory.entries[name_of(to)] = node;
  changed(directory);
}

void MemoryFileSystem::remove(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  Node& directory = parent("remove", path);
  const auto node = find(path);
  if (!node || !node->entries.empty()) throw FileError("remove", path, node ? ENOTEMPTY : ENOENT);
  directory.entries.erase(name_of(path));
  changed(directory);
}

std::vector<DirectoryEntry> MemoryFileSystem::list(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const auto node = find(path);
  if (!node) throw FileError("list", path, ENOENT);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : node->entries) entries.push_back({name, child->kind});
  return entries;
}

EntryKind MemoryFileSystem::kind(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const auto node = find(path);
  return node ? node->kind : EntryKind::Missing;
}

LockAttempt MemoryFileSystem::lock(const std::string& path, const std::string& holder) {
  const std::scoped_lock guard(mutex_);
  Node& directory = parent("lock", path);
  auto& node = directory.entries[name_of(path)];
  if (!node) {
    node = std::make_shared<Node>();
    changed(directory);
  }
  if (!node->held.expired()) return {nullptr, node->bytes};
  auto held = std::make_shared<int>(0);
  node->held = held;
  node->bytes = holder;
  return {std::make_unique<MemoryFileLock>(std::move(held)), holder};
}

void MemoryFileSystem::lose_power(PowerLoss loss_of, uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  std::mt19937_64 random(seed);
  lose(*root_, loss_of, random);
}

std::unique_ptr<ScratchFile> MemoryFileSystem::create_scratch(const std::string& path, int64_t bytes, bool direct) {
  const std::scoped_lock lock(mutex_);
  parent("create", path);
  if (direct) throw FileError("create", path, EINVAL);
  return std::make_unique<MemoryScratchFile>(path, bytes);
}

}  // namespace trivet::support
