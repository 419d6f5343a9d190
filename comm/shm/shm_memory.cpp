#include "comm/shm/shm_memory.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <stdexcept>

#include "comm/shm/segment.h"

namespace trivet::comm {

SharedMemory::NewBoard ShmMemory::create_board(int64_t bytes) {
  uint64_t token = 0;
  if (getrandom(&token, sizeof token, 0) != sizeof token) throw std::logic_error("comm: the system provides no random numbers");
  return {create_segment(name_of_group(token), bytes), token};
}

std::shared_ptr<std::byte> ShmMemory::attach_board(uint64_t token, int64_t bytes) {
  return attach_segment(name_of_group(token), bytes);
}

void ShmMemory::unlink_board(uint64_t token) { unlink_segment(name_of_group(token)); }

std::string ShmMemory::name_of_group(uint64_t token) const { return fmt::format("{}-{:016x}", prefix_, token); }

}  // namespace trivet::comm
