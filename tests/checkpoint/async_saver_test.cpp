#include "engine/checkpoint/async_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/checkpoint/participant_threads.h"
#include "tests/checkpoint/sample_tensors.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/memory_file_system.h"
#include "zero/offload/file_tensor.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;
using ::testing::HasSubstr;

constexpr const char* kDirectory = "/c";
const Log kQuiet(0, static_cast<LogLevel>(4));

CheckpointStoreOptions options() { return {.directory = kDirectory, .run_id = "run", .log = kQuiet}; }

TEST(AsyncSaver, WritesWhatThePiecesHeldWhenItWasCalled) {
  MemoryFileSystem files;
  run_ranks(2, [&](const Participants& ranks) {
    CheckpointStore store(files, options());
    MemoryMeter meter;
    AsyncSaver saver(store, ranks, meter, kQuiet);
    RankPieces mine = make_pieces({.data = 2}, ranks.rank, 1, true);
    for (int64_t step : {1, 2, 3}) {
      mine = make_pieces({.data = 2}, ranks.rank, step, true);
      saver.start({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""});
      for (auto& memory : mine.memory) std::fill(memory.begin(), memory.end(), std::byte{0x55});  // training continues
    }
    saver.finish();
    EXPECT_EQ(saver.staging_bytes(), AsyncSaver::staging_bytes_for(mine.pieces));
    EXPECT_EQ(meter.peak()[MemoryCategory::Buffers], saver.staging_bytes());
  });
  const auto steps = list_steps(files, kDirectory);
  ASSERT_EQ(steps.size(), 3u);
  for (const StepDirectory& step : steps) expect_values(LoadedStep(files, std::string(kDirectory) + "/" + step.name));
}

// Moves the piece's data to a file tensor of its own in the store, at an offset where copies may not begin.
std::unique_ptr<zero::offload::FileTensor> put_into(zero::offload::FileStore& store, Piece& piece) {
  constexpr int64_t kBefore = 3;
  MemoryMeter meter;
  const int64_t bytes = (piece.count + kBefore) * size_of(piece.data.dtype);
  Buffer memory(host_allocator(), meter, MemoryCategory::Activations, DType::UInt8, {bytes});
  auto* const data = static_cast<std::byte*>(memory.view().data);
  if (piece.count > 0)
    std::memcpy(data + kBefore * size_of(piece.data.dtype), piece.data.data, static_cast<size_t>(piece.data.bytes()));
  auto tensor = std::make_unique<zero::offload::FileTensor>(store, piece.data.dtype, piece.count + kBefore);
  tensor->write(0, {data, piece.data.dtype, {piece.count + kBefore}}).wait();
  piece.data.data = nullptr;
  piece.staged = tensor.get();
  piece.staged_first = kBefore;
  return tensor;
}

std::unique_ptr<zero::offload::FileStore> make_store(MemoryFileSystem& files) {
  files.create_directory(kDirectory);
  return zero::offload::make_file_store(files, {.path = "/store", .folder_key = "KEY", .capacity_bytes = int64_t{16} << 20});
}

// They are written before start() returns, and nothing is staged.
TEST(AsyncSaver, PiecesInFilesAreWrittenFromThere) {
  MemoryFileSystem files;
  const auto offloaded = make_store(files);
  CheckpointStore store(files, options());
  MemoryMeter meter;
  AsyncSaver saver(store, {}, meter, kQuiet);
  RankPieces mine = make_pieces({}, 0, 1, true);
  std::vector<std::unique_ptr<zero::offload::FileTensor>> tensors;
  for (Piece& piece : mine.pieces) tensors.push_back(put_into(*offloaded, piece));
  saver.start({.step = 1, .pieces = mine.pieces, .state = sample_state(1), .config = ""});
  expect_values(LoadedStep(files, std::string(kDirectory) + "/" + list_steps(files, kDirectory).at(0).name));
  EXPECT_EQ(saver.staging_bytes(), 0);
  EXPECT_EQ(AsyncSaver::staging_bytes_for(mine.pieces), 0);
  saver.finish();
}

// Only the device's copy function may read device memory, which holds the complement of the values here.
TEST(AsyncSaver, PiecesOnADeviceAreStagedWhileThoseInFilesAreNot) {
  MemoryFileSystem files;
  const auto offloaded = make_store(files);
  CheckpointStore store(files, options());
  MemoryMeter meter;
  const auto copy_from_device = [](ConstTensorView from, TensorView to) {
    const auto* const complement = static_cast<const std::byte*>(from.data);
    std::transform(complement, complement + from.bytes(), static_cast<std::byte*>(to.data), [](std::byte b) { return ~b; });
  };
  AsyncSaver saver(store, {}, meter, kQuiet, {.copy = copy_from_device, .apart = true});
  RankPieces mine = make_pieces({}, 0, 1, true);
  std::vector<std::unique_ptr<zero::offload::FileTensor>> tensors;
  for (size_t i = 0; i < mine.pieces.size(); ++i) {
    if (i % 2 == 0) {
      tensors.push_back(put_into(*offloaded, mine.pieces[i]));
    } else {
      auto* const data = static_cast<std::byte*>(mine.pieces[i].data.data);
      std::transform(data, data + mine.pieces[i].data.bytes(), data, [](std::byte b) { return ~b; });
    }
  }
  saver.start({.step = 1, .pieces = mine.pieces, .state = sample_state(1), .config = ""});
  expect_values(LoadedStep(files, std::string(kDirectory) + "/" + list_steps(files, kDirectory).at(0).name));
  saver.finish();
}

TEST(AsyncSaver, TrainingGoesOnAfterAFailureUntilThereAreTooManyInARow) {
  MemoryFileSystem disk;
  disk.create_directory(kDirectory);
  FaultyFileSystem full(disk, Fault::DiskFull, 1);
  CheckpointStore store(full, options());
  MemoryMeter meter;
  AsyncSaver saver(store, {}, meter, kQuiet, {}, 3);
  const RankPieces mine = make_pieces({}, 0, 1, true);
  const auto start = [&](int64_t step) {
    saver.start({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""});
  };
  for (int64_t step : {1, 2, 3}) EXPECT_NO_THROW(start(step));
  try {
    start(4);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::CheckpointNotWritten);
    EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
  }
}

// What a save of step 1 says.
std::string said(AsyncSaver& saver, OnFailure on_failure) {
  const RankPieces mine = make_pieces({}, 0, 1, true);
  ::testing::internal::CaptureStderr();
  saver.start({.step = 1, .pieces = mine.pieces, .state = sample_state(1), .config = ""}, on_failure);
  try {
    saver.finish();
  } catch (const CheckpointError&) {
  }
  return ::testing::internal::GetCapturedStderr();
}

// The message says "training continues" only if it does.
TEST(AsyncSaver, SaysWhatFollowsAFailure) {
  MemoryFileSystem disk;
  disk.create_directory(kDirectory);
  FaultyFileSystem full(disk, Fault::DiskFull, 1);
  CheckpointStore store(full, options());
  MemoryMeter meter;
  AsyncSaver saver(store, {}, meter, Log(0), {}, 3);
  EXPECT_THAT(said(saver, OnFailure::Continue),
              HasSubstr("; training continues (1 of 3 failures in a row that end the run)\n"));
  EXPECT_THAT(said(saver, OnFailure::Continue),
              HasSubstr("; training continues (2 of 3 failures in a row that end the run)\n"));
  EXPECT_THAT(said(saver, OnFailure::Continue), HasSubstr("; 3 saves in a row failed, so the run ends at the next save\n"));
  AsyncSaver last(store, {}, meter, Log(0), {}, 3);
  EXPECT_EQ(said(last, OnFailure::End), "") << "finish() throws the error";
}

TEST(AsyncSaver, WithoutALimitFailuresNeverEndTheRunAndTheFirstIsReported) {
  MemoryFileSystem disk;
  disk.create_directory(kDirectory);
  FaultyFileSystem full(disk, Fault::DiskFull, 1);
  MemoryMeter meter;
  CheckpointStore without_space(full, options());
  AsyncSaver saver(without_space, {}, meter, Log(0), {}, 0);
  EXPECT_THAT(said(saver, OnFailure::Continue),
              HasSubstr("; training continues, and the next one is tried; not each further failure in a row is reported"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(said(saver, OnFailure::Continue), "");
  saver.report_next_failure();
  EXPECT_THAT(said(saver, OnFailure::Continue), HasSubstr("; 7 saves in a row failed; training continues"));
  EXPECT_EQ(said(saver, OnFailure::Continue), "") << "asked for once";
  const RankPieces mine = make_pieces({}, 0, 1, true);
  saver.start({.step = 1, .pieces = mine.pieces, .state = sample_state(1), .config = ""});
  EXPECT_NO_THROW(saver.wait());
}

TEST(AsyncSaver, WithoutALimitTheFirstSaveAfterFailuresIsReported) {
  MemoryFileSystem disk;
  disk.create_directory(kDirectory);
  FaultyFileSystem once(disk, Fault::IoError, 20);  // a call within the first save
  CheckpointStore store(once, options());
  MemoryMeter meter;
  AsyncSaver saver(store, {}, meter, Log(0), {}, 0);
  EXPECT_THAT(said(saver, OnFailure::Continue), HasSubstr("training continues"));
  EXPECT_THAT(said(saver, OnFailure::Continue), HasSubstr("step 1 is saved, after 1 failures in a row"));
  EXPECT_EQ(said(saver, OnFailure::Continue), "");
}

TEST(AsyncSaver, WeightsThatAreNotFiniteAreNeverForgiven) {
  MemoryFileSystem files;
  CheckpointStore store(files, options());
  MemoryMeter meter;
  RankPieces mine = make_pieces({}, 0, 1, true);
  mine.pieces[0].data.as<float>()[7] = HUGE_VALF;
  const auto start = [&](AsyncSaver& saver, int64_t step) {
    saver.start({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""});
  };
  AsyncSaver finished(store, {}, meter, kQuiet);
  start(finished, 1);
  EXPECT_THROW(finished.finish(), NumericsError);
  AsyncSaver started(store, {}, meter, kQuiet);
  start(started, 1);
  EXPECT_THROW(start(started, 2), NumericsError);
  EXPECT_TRUE(list_steps(files, kDirectory).empty());
}

TEST(AsyncSaver, OneFailureIsForgivenAndTheNextSaveCommits) {
  MemoryFileSystem disk;
  disk.create_directory(kDirectory);
  FaultyFileSystem once(disk, Fault::IoError, 20);  // a call within the first save
  CheckpointStore store(once, options());
  MemoryMeter meter;
  AsyncSaver saver(store, {}, meter, kQuiet, {}, 2);
  for (int64_t step : {1, 2, 3}) {
    const RankPieces mine = make_pieces({}, 0, step, true);
    saver.start({.step = step, .pieces = mine.pieces, .state = sample_state(step), .config = ""});
  }
  EXPECT_NO_THROW(saver.finish());
  EXPECT_EQ(list_steps(disk, kDirectory).size(), 2u);
  EXPECT_EQ(open_newest(disk, kDirectory).step(), 3);
}

TEST(AsyncSaver, TheLastFailureIsThrownByFinish) {
  MemoryFileSystem disk;
  FaultyFileSystem full(disk, Fault::DiskFull, 1);
  CheckpointStore store(full, options());
  MemoryMeter meter;
  AsyncSaver saver(store, {}, meter, kQuiet);
  const RankPieces mine = make_pieces({}, 0, 1, true);
  saver.start({.step = 1, .pieces = mine.pieces, .state = sample_state(1), .config = ""});
  EXPECT_THROW(saver.finish(), CheckpointError);
}

TEST(AsyncSaver, ALostPeerIsNotForgiven) {
  MemoryFileSystem disk;
  disk.create_directory(kDirectory);
  CheckpointStore store(disk, options());
  MemoryMeter meter;
  const Participants alone{
      0, 2, [](const std::string&) -> std::vector<std::string> { throw CommError(ExitCode::PeerLost, "rank 1 is lost"); }};
  AsyncSaver saver(store, alone, meter, kQuiet);
  const RankPieces mine = make_pieces({.data = 2}, 0, 1, true);
  saver.start({.step = 1, .pieces = mine.pieces, .state = sample_state(1), .config = ""});
  EXPECT_THROW(saver.start({.step = 2, .pieces = mine.pieces, .state = sample_state(2), .config = ""}), CommError);
}

}  // namespace
}  // namespace trivet::checkpoint
