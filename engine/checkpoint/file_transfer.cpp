#include "engine/checkpoint/file_transfer.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <numeric>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

int64_t chunks_of(const FileTransfer& transfer) { return (transfer.bytes + kTransferBytes - 1) / kTransferBytes; }

// The first thing that went wrong on this rank. The rounds go on, because the other ranks take part in them.
class FirstFailure {
 public:
  template <typename Work>
  bool attempt(Work&& work) {
    try {
      work();
      return true;
    } catch (const FileError&) {
      keep();
    } catch (const CheckpointError&) {
      keep();
    }
    return false;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void keep() {
    if (!failure_) failure_ = std::current_exception();
  }
  std::exception_ptr failure_;
};

// The files that two ranks have in common, one after another. A chunk is followed by one byte, which is 1 if the sender could
// not read it.
class FileQueue {
 public:
  void add(const FileTransfer& transfer) { transfers_.push_back(&transfer); }
  size_t message_bytes() const { return transfers_.empty() ? 0 : static_cast<size_t>(chunk_bytes()) + 1; }

 protected:
  const FileTransfer& current() const { return *transfers_.front(); }
  int64_t done() const { return done_; }
  int64_t chunk_bytes() const { return std::min(kTransferBytes, current().bytes - done_); }
  // Returns whether this was the last chunk of the file; `then` still sees the file as the current one.
  template <typename Then>
  void advance(Then&& at_end_of_file) {
    done_ += chunk_bytes();
    if (done_ < current().bytes) return;
    at_end_of_file();
    transfers_.pop_front();
    done_ = 0;
  }

 private:
  std::deque<const FileTransfer*> transfers_;
  int64_t done_ = 0;
};

class SendQueue : public FileQueue {
 public:
  void fill(FileSystem& files, std::span<std::byte> message, FirstFailure& failure) {
    const bool readable = failure.attempt([&] {
      if (!file_) file_ = files.open(current().source);
      file_->read_exactly(done(), message.first(message.size() - 1));
    });
    message.back() = readable ? std::byte{0} : std::byte{1};
    advance([&] { file_.reset(); });
  }

 private:
  std::unique_ptr<ReadableFile> file_;
};

class ReceiveQueue : public FileQueue {
 public:
  void take(FileSystem& files, std::span<const std::byte> message, FirstFailure& failure) {
    const std::span chunk = message.first(message.size() - 1);
    if (done() == 0) begin();
    if (message.back() != std::byte{0}) usable_ = false;  // the sender reports why
    usable_ = usable_ && failure.attempt([&] {
      if (!file_) file_ = files.create(current().target, current().bytes);
      XXH3_64bits_update(&hash_, chunk.data(), chunk.size());
      file_->write(chunk);
    });
    advance([&] {
      if (usable_) failure.attempt([&] { end(); });
    });
  }

 private:
  void begin() {
    usable_ = true;
    file_.reset();
    XXH3_64bits_reset(&hash_);
  }
  void end() {
    if (const uint64_t xxh3 = XXH3_64bits_digest(&hash_); xxh3 != current().xxh3)
      throw CheckpointError(ExitCode::CheckpointNotWritten,
                            fmt::format("{}: xxh3 {:016x} of what rank {} has sent, expected {:016x}", current().target, xxh3,
                                        current().from, current().xxh3));
    file_->sync();
    file_->close();
    file_.reset();
  }

  alignas(64) XXH3_state_t hash_;
  std::unique_ptr<WritableFile> file_;
  bool usable_ = true;
};

int64_t rounds_of(const std::vector<FileTransfer>& transfers) {
  std::map<std::pair<int, int>, int64_t> chunks;
  for (const FileTransfer& transfer : transfers) chunks[{transfer.from, transfer.to}] += chunks_of(transfer);
  int64_t most = 0;
  for (const auto& [pair, count] : chunks) most = std::max(most, count);
  return most;
}

// Returns how much each rank has in this round; the queues are by rank.
template <typename Queue>
std::vector<int64_t> message_sizes(const std::map<int, Queue>& queues, int ranks, std::vector<std::byte>& memory) {
  std::vector<int64_t> bytes(static_cast<size_t>(ranks));
  for (const auto& [rank, queue] : queues) bytes[rank] = static_cast<int64_t>(queue.message_bytes());
  memory.resize(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
  return bytes;
}

}  // namespace

void transfer(FileSystem& files, const Participants& ranks, const JobHosts& hosts, const std::vector<FileTransfer>& transfers) {
  std::map<int, SendQueue> sends;
  std::map<int, ReceiveQueue> receives;
  for (const FileTransfer& transfer : transfers) {
    if (transfer.from == ranks.rank) sends[transfer.to].add(transfer);
    if (transfer.to == ranks.rank) receives[transfer.from].add(transfer);
  }
  FirstFailure failure;
  std::vector<std::byte> out, in;
  for (int64_t round = rounds_of(transfers); round > 0; --round) {
    const comm::ExchangeCounts counts{.sent = message_sizes(sends, ranks.size, out),
                                      .received = message_sizes(receives, ranks.size, in)};
    std::byte* at = out.data();
    for (auto& [rank, queue] : sends) {
      const std::span message(at, queue.message_bytes());
      at += message.size();
      if (!message.empty()) queue.fill(files, message, failure);
    }
    hosts.exchange(out, in, counts);
    at = in.data();
    for (auto& [rank, queue] : receives) {
      const std::span message(at, queue.message_bytes());
      at += message.size();
      if (!message.empty()) queue.take(files, message, failure);
    }
  }
  together(ranks, [&]() -> std::string {
    failure.rethrow();
    return "";
  });
}

}  // namespace trivet::checkpoint
