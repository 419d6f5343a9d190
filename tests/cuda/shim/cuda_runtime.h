// The part of the CUDA runtime that Trivet uses, on a device that is the CPU. See shim.h for how the device behaves and what
// tests can set. This folder comes before all other include folders, so that no file of a CUDA toolkit is found.
#pragma once

#include "device_code.h"
#include "launch.h"
#include "runtime_api.h"
#include "vector_types.h"
