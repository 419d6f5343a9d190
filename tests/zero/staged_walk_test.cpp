#include "zero/staged_walk.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"
#include "core/error.h"
#include "core/random.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/memory_file_system.h"
#include "zero/staging.h"

namespace trivet::zero {
namespace {

using trivet::support::Fault;
using trivet::support::FaultyFileSystem;
using trivet::support::MemoryFileSystem;

constexpr int64_t kElements = 13'312;  // of the one parameter: six pieces of 2048 elements and one of 1024

// A group in bfloat16 whose master weights and one state are in a file.
struct Offloaded {
  explicit Offloaded(FileSystem& files, int64_t buffer_bytes = 1 << 20, int threads = 1)
      : store(offload::make_file_store(files,
                                       {.path = "/store", .folder_key = "KEY", .capacity_bytes = 1 << 20, .threads = threads})),
        buffers("buffers", host_allocator(), meter, MemoryCategory::Buffers, buffer_bytes) {
    layout.blocks[0].groups[0].states = Placement::File;
    group = std::make_unique<ParameterGroup>(
        layout.blocks[0].groups[0],
        GroupOptions{.dtype = DType::BFloat16, .gradient_dtype = DType::BFloat16, .optimizer_states = 1},
        Resources{.kernels = *kernels,
                  .allocator = host_allocator(),
                  .meter = meter,
                  .buffers = buffers,
                  .axes = {{*single, *stream, *single, *stream}},
                  .collectives = {},
                  .offload = {.states = store.get(), .staging = {.most_elements = 2048}}});
  }
  void visit_all(Access access, const StagingOptions& options, const UsePiece& use) {
    visit(pieces_of(*group, 2048), access_to_all(*group, access), buffers, options, use);
  }

  std::vector<ParameterSpec> specs{{.name = "weight", .shape = {kElements}}};
  ShardLayout layout = make_shard_layout({{"net", specs}}, {.shards = ShardCounts(1)});
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  std::unique_ptr<Stream> stream = make_inline_stream();
  std::unique_ptr<comm::ProcessGroup> single = comm::make_single_group("single");
  MemoryMeter meter;
  std::unique_ptr<offload::FileStore> store;
  Arena buffers;
  std::unique_ptr<ParameterGroup> group;
};

TEST(StagedWalk, CutsWhatIsInAFileAndLeavesWhatIsInMemoryWhole) {
  MemoryFileSystem files;
  Offloaded offloaded(files);
  std::string text;
  for (const OwnedPiece& piece : pieces_of(*offloaded.group, 3000)) text += fmt::format("{}+{} ", piece.first, piece.count);
  EXPECT_EQ(text, "0+2048 2048+2048 4096+2048 6144+2048 8192+2048 10240+2048 12288+1024 ");
  EXPECT_EQ(pieces_of(*offloaded.group, 1).size(), 7u);  // 2048 is the minimum
  EXPECT_EQ(offloaded.meter.now()[MemoryCategory::Optimizer], 0);
  EXPECT_GT(offloaded.meter.now()[MemoryCategory::Parameters], 0);
}

TEST(StagedWalk, GivesBackInEveryVisitWhatTheOneBeforeItLeft) {
  for (const bool read_ahead : {false, true})
    for (const bool write_behind : {false, true}) {
      MemoryFileSystem memory;
      FaultyFileSystem files(memory, Fault::SlowWrites);  // so that they overlap with later reads
      Offloaded offloaded(files, 1 << 20, 8);
      const StagingOptions options{.most_elements = 2048, .read_ahead = read_ahead, .write_behind = write_behind};
      for (int round = 0; round < 3; ++round) {
        int64_t next = 0;
        offloaded.visit_all(Access::ReadWrite, options, [&](const OwnedPiece& piece, const OwnedRange& range) {
          EXPECT_EQ(range.first, next);
          EXPECT_EQ(piece.count, range.count);
          for (int64_t e = 0; e < range.count; ++e, ++next) {
            float& state = range.states[0].as<float>()[e];
            EXPECT_EQ(state, static_cast<float>(round) * static_cast<float>(next));
            state += static_cast<float>(next);
          }
        });
        EXPECT_EQ(next, kElements);
      }
    }
}

TEST(StagedWalk, WhatIsReadOnlyMayBeginAndEndAnywhere) {
  MemoryFileSystem files;
  Offloaded offloaded(files);
  offloaded.visit_all(Access::Write, {}, [](const OwnedPiece& piece, const OwnedRange& range) {
    for (int64_t e = 0; e < range.count; ++e) range.master.as<float>()[e] = static_cast<float>(piece.first + e);
  });
  const std::vector<OwnedPiece> pieces{{offloaded.group.get(), 1000, 100}, {offloaded.group.get(), kElements - 1, 1}};
  visit(pieces, {.master = Access::Read}, offloaded.buffers, {}, [](const OwnedPiece& piece, const OwnedRange& range) {
    for (int64_t e = 0; e < range.count; ++e) EXPECT_EQ(range.master.as<float>()[e], static_cast<float>(piece.first + e));
  });
  EXPECT_THROW(visit(pieces, {.master = Access::ReadWrite}, offloaded.buffers, {}, [](const auto&, const auto&) {}),
               std::logic_error);
}

TEST(StagedWalk, StagesOneTwoOrThreePiecesAtATime) {
  const int64_t set = 2 * 2048 * 4 + kStagingAlignment;  // master weights, the state, and their alignment
  for (const auto& [read_ahead, write_behind, sets] : {std::tuple{false, false, 1}, {true, false, 2}, {true, true, 3}}) {
    MemoryFileSystem files;
    Offloaded offloaded(files, sets * set);
    const StagingOptions options{.most_elements = 2048, .read_ahead = read_ahead, .write_behind = write_behind};
    offloaded.visit_all(Access::ReadWrite, options,
                        [&](const OwnedPiece&, const OwnedRange&) { EXPECT_EQ(offloaded.buffers.used_bytes(), sets * set); });
    EXPECT_EQ(offloaded.buffers.used_bytes(), 0);
  }
}

TEST(StagedWalk, TheInitialValuesAreThoseOfAGroupInMemory) {
  MemoryFileSystem files;
  Offloaded offloaded(files);
  offloaded.group->initialize(7);
  std::vector<float> expected(kElements);
  const TensorView whole{expected.data(), DType::Float32, {kElements}};
  offloaded.kernels->initialize(whole, offloaded.specs[0].init, random_key(7, "net.weight"), 0);
  offloaded.visit_all(Access::Read, {}, [&](const OwnedPiece& piece, const OwnedRange& range) {
    for (int64_t e = 0; e < range.count; ++e) EXPECT_EQ(range.master.as<float>()[e], expected[piece.first + e]);
  });
}

// The error is thrown, and no copy is in flight any more in the memory that is released.
TEST(StagedWalk, AnErrorOfTheDiskEndsTheVisit) {
  for (int64_t call = 2; call < 30; ++call) {
    MemoryFileSystem memory;
    FaultyFileSystem files(memory, Fault::IoError, call + 1);  // opening an uncached file, which is refused, is a call, too
    Offloaded offloaded(files);
    EXPECT_THROW(offloaded.visit_all(Access::ReadWrite, {.most_elements = 2048, .read_ahead = true, .write_behind = true},
                                     [](const OwnedPiece&, const OwnedRange&) {}),
                 StorageError);
    EXPECT_EQ(offloaded.buffers.used_bytes(), 0);
  }
}

TEST(StagingRing, CopiesWhatIsLargerThanItsBuffersInPieces) {
  for (const int64_t buffers : {1, 2, 5}) {
    MemoryFileSystem files;
    Offloaded offloaded(files);
    offloaded.visit_all(Access::Write, {}, [](const OwnedPiece& piece, const OwnedRange& range) {
      for (int64_t e = 0; e < range.count; ++e) range.master.as<float>()[e] = static_cast<float>(piece.first + e);
    });
    StagingRing ring(host_allocator(), offloaded.meter, buffers, 5000);  // 8192 bytes
    std::vector<float> out(kElements);
    const auto stream = make_thread_stream("ring");
    for (int round = 0; round < 3; ++round) {
      std::fill(out.begin(), out.end(), -1.0f);
      ring.read(*offloaded.group->owned().master.staged, {out.data(), DType::Float32, {kElements}}, *stream,
                *offloaded.kernels);
      stream->synchronize();
      for (int64_t e = 0; e < kElements; ++e) EXPECT_EQ(out[e], static_cast<float>(e));
    }
  }
}

}  // namespace
}  // namespace trivet::zero
