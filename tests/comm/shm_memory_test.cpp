// Tests the memory that the processes of a host share: segments, which have a name, and the heap, which has none.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/shm/heap.h"
#include "comm/shm/segment.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class Segment : public testing::Test {
 protected:
  const std::string name_ = fmt::format("/trivet-test-{}", ::getpid());
  const SegmentName removed_at_the_end_{name_};
};

TEST_F(Segment, IsTheSameMemoryForAllWhoAttachIt) {
  const auto mine = create_segment(name_, 4096), theirs = attach_segment(name_, 4096);
  mine.get()[4095] = std::byte{7};
  EXPECT_EQ(theirs.get()[4095], std::byte{7});
  EXPECT_THAT([&] { create_segment(name_, 4096); }, ThrowsMessage<CommError>(HasSubstr("cannot be created: File exists")));
}

TEST_F(Segment, ThatIsSmallerThanItShouldBeIsNotMapped) {
  const auto mine = create_segment(name_, 4096);
  EXPECT_THAT([&] { attach_segment(name_, 4097); },
              ThrowsMessage<CommError>(HasSubstr("is smaller than it should be: the ranks run different builds or arguments")));
}

TEST_F(Segment, HasNoNameAnyMoreWhenItIsUnlinked) {
  const auto mine = create_segment(name_, 4096);
  unlink_segment(name_);
  EXPECT_THAT([&] { attach_segment(name_, 4096); }, ThrowsMessage<CommError>(HasSubstr("cannot be opened: No such file")));
}

TEST(ShmHeap, PublishesWhatLiesInTheRegionsOfItsRanksAndNothingElse) {
  const auto heap = ShmHeap::create(2);
  ASSERT_TRUE(heap);
  auto* const first = static_cast<std::byte*>(heap->allocate(64));  // at the beginning of rank 0's region
  const int64_t total = 2 * ShmHeap::kRegionBytes;
  EXPECT_EQ(heap->publish(first, 64), 1u);
  EXPECT_EQ(heap->publish(first + total - 64, 64), static_cast<uint64_t>(total - 64 + 1));
  EXPECT_EQ(heap->publish(first + total - 64, 65), 0u);
  EXPECT_EQ(heap->publish(first - 1, 64), 0u);
  EXPECT_EQ(heap->resolve(1), first);
  heap->release(first, 64);
}

}  // namespace
}  // namespace trivet::comm
