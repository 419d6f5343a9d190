#include "tensor_core_emulation.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <vector>

#include "block.h"

namespace cuda_shim {
namespace {

constexpr int kMaxThreads = 1024, kRowBytes = 16;

// The matrices that a warp multiplies. Each warp uses two of these in turn: while lanes write the next one, others may still
// read the last.
struct Matrices {
  float a[16][16], b[16][8];
};
Matrices& matrices_of_warp() {
  static thread_local Matrices matrices[kMaxThreads / warpSize][2];
  static thread_local std::array<uint8_t, kMaxThreads> turns{};
  const int thread = BlockRunner::current().running_thread();
  return matrices[thread / warpSize][turns[thread]++ % 2];
}

void require_shared_row(const char* instruction, const void* address) {
  BlockRunner& runner = BlockRunner::current();
  if (reinterpret_cast<uintptr_t>(address) % kRowBytes != 0)
    runner.fail(fmt::format("{}: the address {} in shared memory is not aligned to {} bytes", instruction, address, kRowBytes));
  if (!runner.in_dynamic_shared(address, kRowBytes))
    runner.fail(fmt::format("{}: the address {} is not in the block's dynamic shared memory", instruction, address));
}

struct Copy {
  void* to;
  const void* from;  // null: zeros
};
struct Copies {
  std::vector<Copy> open;                 // since the last commit
  std::vector<std::vector<Copy>> groups;  // not waited for, oldest first
};
Copies& copies_of(int thread) {
  static thread_local std::array<Copies, kMaxThreads> copies;
  return copies[thread];
}
Copies& copies_of_this_thread() { return copies_of(BlockRunner::current().running_thread()); }

}  // namespace

void mma_m16n8k16(float (&c)[4], const float (&a)[8], const float (&b)[4]) {
  const int group = lane >> 2, in_group = lane % 4;  // groupID, threadID_in_group
  Matrices& matrices = matrices_of_warp();
  for (int i = 0; i < 8; ++i) {
    const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
    const int col = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
    matrices.a[row][col] = a[i];
  }
  for (int i = 0; i < 4; ++i) {
    const int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8), col = group;
    matrices.b[row][col] = b[i];
  }
  exchange(WarpOperation::Matrix, 0xffffffffu, 0);
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? group : group + 8, col = in_group * 2 + (i & 1);
    for (int k = 0; k < 16; ++k) c[i] += matrices.a[row][k] * matrices.b[k][col];
  }
}

void ldmatrix_x4(uint32_t (&r)[4], const void* row, bool transposed) {
  require_shared_row("ldmatrix", row);
  const uint64_t* addresses = exchange(WarpOperation::Matrix, 0xffffffffu, reinterpret_cast<uint64_t>(row));
  for (int m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int across = lane / 4, along = lane % 4 * 2 + i;
      const int matrix_row = transposed ? along : across, matrix_col = transposed ? across : along;
      std::memcpy(&pair[i], reinterpret_cast<const uint16_t*>(addresses[8 * m + matrix_row]) + matrix_col, sizeof pair[i]);
    }
    r[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}

void cp_async_16(void* to, const void* from, bool valid) {
  require_shared_row("cp.async", to);
  if (reinterpret_cast<uintptr_t>(from) % kRowBytes != 0)
    BlockRunner::current().fail(fmt::format("cp.async: the address {} is not aligned to {} bytes", from, kRowBytes));
  std::memset(to, 0xFF, kRowBytes);
  copies_of_this_thread().open.push_back({to, valid ? from : nullptr});
}

void cp_async_commit() {
  Copies& copies = copies_of_this_thread();
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}

void cp_async_wait(int pending) {
  auto& groups = copies_of_this_thread().groups;
  while (static_cast<int>(groups.size()) > pending) {
    for (const Copy& copy : groups.front()) {
      if (copy.from)
        std::memcpy(copy.to, copy.from, kRowBytes);
      else
        std::memset(copy.to, 0, kRowBytes);
    }
    groups.erase(groups.begin());
  }
}

int forget_copies(int thread) {
  Copies& copies = copies_of(thread);
  const int left = static_cast<int>(copies.groups.size()) + (copies.open.empty() ? 0 : 1);
  copies = {};
  return left;
}

}  // namespace cuda_shim
