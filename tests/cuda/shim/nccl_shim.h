// Lets tests plant faults in the fake NCCL, and ask what it has done. See nccl.h.
#pragma once

#include <nccl.h>

#include <string>

namespace cuda_shim {

// Sets what ncclGetVersion returns; 0 means NCCL_VERSION_CODE again.
void set_nccl_version(int code);
// The communicator of this name (ncclConfig_t::commName) and rank has this asynchronous error from now on.
void fail_communicator(const std::string& name, int rank, ncclResult_t error, const std::string& text);
// The number of communicators that have neither been destroyed nor aborted.
int live_communicators();
// The number of communicators that were aborted since the process started.
int aborted_communicators();

}  // namespace cuda_shim
