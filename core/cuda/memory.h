// Allocators of GPU memory and of host memory that a GPU copies from and to at full speed. Both return zeroed, 256-byte aligned
// memory.
//
// Allocating and releasing make the host wait for the device, so the steady state does neither.
#pragma once

#include <memory>

#include "core/buffer.h"

namespace trivet::cuda {

// OutOfMemoryError states how much was requested, and the device's free and total memory.
std::unique_ptr<Allocator> make_device_allocator(int device);
// Page-locked host memory. `device` is the device of the rank that uses it; other devices may use it, too. OutOfMemoryError
// states how much was requested, and how much the system has.
std::unique_ptr<Allocator> make_pinned_allocator(int device);

}  // namespace trivet::cuda
