#include "embed/reserved_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "core/error.h"

namespace trivet::embed {
namespace {

class ReservedMemory final : public Allocator {
 public:
  Device device() const override { return Device::Cpu; }
  void* allocate(int64_t bytes) override {
    void* const data =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
      throw OutOfMemoryError(
          fmt::format("embed: {} bytes of addresses cannot be reserved; raise the limit of virtual memory "
                      "(ulimit -v), or set vm.overcommit_memory to 0",
                      bytes));
    return data;
  }
  void release(void* data, int64_t bytes) noexcept override { ::munmap(data, static_cast<size_t>(bytes)); }
};

}  // namespace

Allocator& reserved_memory() {
  static ReservedMemory memory;
  return memory;
}

}  // namespace trivet::embed
