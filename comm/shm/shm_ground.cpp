#include "comm/shm/shm_ground.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <stdexcept>

#include "comm/shm/segment.h"

namespace trivet::comm {

std::shared_ptr<std::byte> ShmGround::found(int64_t bytes, uint64_t& token) {
  if (getrandom(&token, sizeof token, 0) != sizeof token) throw std::logic_error("comm: the system provides no random numbers");
  return create_segment(name_of_group(token), bytes);
}

std::shared_ptr<std::byte> ShmGround::join(uint64_t token, int64_t bytes) {
  return attach_segment(name_of_group(token), bytes);
}

void ShmGround::all_joined(uint64_t token) { unlink_segment(name_of_group(token)); }

std::string ShmGround::name_of_group(uint64_t token) const { return fmt::format("{}-{:016x}", prefix_, token); }

}  // namespace trivet::comm
