// Marks functions that kernels on a device call as well.
#pragma once

#ifdef __CUDACC__
#define TRIVET_HOST_DEVICE __host__ __device__
#else
#define TRIVET_HOST_DEVICE
#endif
