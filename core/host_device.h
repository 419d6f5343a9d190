// Marks functions that device kernels call, too.
#pragma once

#ifdef __CUDACC__
#define TRIVET_HOST_DEVICE __host__ __device__
#else
#define TRIVET_HOST_DEVICE
#endif
