// What our sources use of the CUDA runtime, on a device made of the CPU. See shim.h for how the device behaves and what tests
// can set. This folder stands before all other include folders, so that no file of a CUDA toolkit is found.
#pragma once

#include "device_code.h"
#include "launch.h"
#include "runtime_api.h"
#include "vector_types.h"
