#include "engine/checkpoint/async_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool any_staged(std::span<const Piece> pieces) {
  return std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.staged != nullptr; });
}

}  // namespace

void Staging::copy_in_host_memory(ConstTensorView from, TensorView to) {
  if (from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
}

AsyncSaver::AsyncSaver(CheckpointStore& store, Participants ranks, MemoryMeter& meter, Log log, Staging staging,
                       int failure_limit)
    : store_(store),
      ranks_(std::move(ranks)),
      meter_(meter),
      log_(log),
      how_(std::move(staging)),
      failure_limit_(failure_limit) {}

int64_t AsyncSaver::staging_bytes_for(std::span<const Piece> pieces) {
  if (any_staged(pieces)) return 0;
  int64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += aligned(piece.data.bytes());
  return bytes;
}

void AsyncSaver::start(const SaveRequest& request, OnFailure on_failure) {
  wait();
  if (failure_limit_ > 0 && failures_in_a_row_ >= failure_limit_) std::rethrow_exception(failure_);
  on_failure_ = on_failure;
  reports_failure_ = std::exchange(report_next_failure_, false);
  if (any_staged(request.pieces)) {
    stage(request, how_.apart);
    write();
    staging_.reset();  // not needed until the next save
    return forgive_failed_write();
  }
  stage(request, true);
  thread_ = std::jthread([this] { write(); });
}

void AsyncSaver::finish() {
  wait();
  if (failure_) std::rethrow_exception(failure_);
}

void AsyncSaver::wait() {
  if (!thread_.joinable()) return;
  thread_.join();
  forgive_failed_write();
}

// Forgives a failed write and nothing else: a lost peer, for example, is thrown.
void AsyncSaver::forgive_failed_write() const {
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const CheckpointError&) {
  }
}

// A piece with a StagedTensor is read from that when it is written.
void AsyncSaver::stage(const SaveRequest& request, bool copies) {
  pieces_.assign(request.pieces.begin(), request.pieces.end());
  request_ = {request.step, pieces_, request.state, request.config};
  const auto is_copied = [&](const Piece& piece) { return copies && !piece.staged; };
  int64_t bytes = 0, offset = 0;
  for (const Piece& piece : pieces_) bytes += is_copied(piece) ? aligned(piece.data.bytes()) : 0;
  if (staging_bytes() < bytes) {
    staging_.reset();
    staging_ = Buffer(how_.allocator, meter_, MemoryCategory::Buffers, DType::UInt8, {bytes});
  }
  for (Piece& piece : pieces_) {
    if (!is_copied(piece)) continue;
    TensorView copy = piece.data;
    copy.data = static_cast<std::byte*>(staging_.view().data) + offset;
    how_.copy(piece.data, copy);
    offset += aligned(piece.data.bytes());
    piece.data = copy;
  }
}

void AsyncSaver::report(const CheckpointError& error) const {
  const bool is_repeated = failure_limit_ == 0 && failures_in_a_row_ > 1 && !reports_failure_;
  if (on_failure_ == OnFailure::End || is_repeated) return;
  log_.warning(error.what() + what_follows());
}

std::string AsyncSaver::what_follows() const {
  if (failure_limit_ == 0)
    return fmt::format("; {}training continues, and the next one is tried; not each further failure in a row is reported",
                       failures_in_a_row_ > 1 ? fmt::format("{} saves in a row failed; ", failures_in_a_row_) : "");
  if (failures_in_a_row_ >= failure_limit_)
    return fmt::format("; {} saves in a row failed, so the run ends at the next save", failures_in_a_row_);
  return fmt::format("; training continues ({} of {} failures in a row that end the run)", failures_in_a_row_, failure_limit_);
}

void AsyncSaver::write() {
  try {
    store_.save(request_, ranks_);
    if (failure_limit_ == 0 && failures_in_a_row_ > 0)
      log_.warning(fmt::format("step {} is saved, after {} failures in a row", request_.step, failures_in_a_row_));
    failure_ = nullptr;
    failures_in_a_row_ = 0;
  } catch (const CheckpointError& error) {
    failure_ = std::current_exception();
    ++failures_in_a_row_;
    report(error);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

}  // namespace trivet::checkpoint
