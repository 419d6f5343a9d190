#include "comm/board.h"

#include <type_traits>

namespace trivet::comm {
namespace {

// The memory of a board is never constructed: zero bytes are its initial state in every process that maps it.
static_assert(std::is_trivially_copyable_v<Entry> && std::is_standard_layout_v<Line> && std::is_standard_layout_v<Mailbox>);
static_assert(sizeof(SharedCounter) == 64 && sizeof(Line) % 64 == 0 && sizeof(Mailbox) % 64 == 0);

constexpr int64_t kBoardPage = 4096;

int64_t head_bytes(int64_t size) {
  const int64_t bytes = static_cast<int64_t>(sizeof(Disagreement)) + 2 * size * static_cast<int64_t>(sizeof(Line)) +
                        size * size * static_cast<int64_t>(sizeof(Mailbox)) +
                        4 * size * size * static_cast<int64_t>(sizeof(int64_t));
  return (bytes + kBoardPage - 1) / kBoardPage * kBoardPage;
}

}  // namespace

int64_t Board::bytes(int size, int64_t slot_bytes, int result_slots) {
  return head_bytes(size) + size * (kCollectiveSlots + kSendSlots + result_slots) * slot_bytes;
}

std::byte* Board::slot(int rank, int64_t index) const {
  return memory_.get() + head_bytes(size_) + (rank * (kCollectiveSlots + kSendSlots + result_slots_) + index) * slot_bytes_;
}

}  // namespace trivet::comm
