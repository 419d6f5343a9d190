// Memory of a GPU, and host memory that it copies from and to at full speed. Both read as zero; 256-byte aligned.
//
// Allocating and releasing make the host wait for the device: not for the steady state.
#pragma once

#include <memory>

#include "core/buffer.h"

namespace trivet::cuda {

// OutOfMemoryError names what was asked for, and what is free and in all on the device.
std::unique_ptr<Allocator> make_device_allocator(int device);
// Page-locked memory of the host. `device`: of the rank that uses it; the others' devices may use it, too. OutOfMemoryError
// names what was asked for, and what the system has.
std::unique_ptr<Allocator> make_pinned_allocator(int device);

}  // namespace trivet::cuda
