// Faults of NCCL that tests plant, and what they can ask. See nccl.h.
#pragma once

#include <nccl.h>

#include <string>

namespace cuda_shim {

// What ncclGetVersion says; 0: NCCL_VERSION_CODE again.
void set_nccl_version(int code);
// The communicator of this name (ncclConfig_t::commName) and rank has this asynchronous error from now on.
void fail_communicator(const std::string& name, int rank, ncclResult_t error, const std::string& text);
// Communicators that have neither been destroyed nor aborted.
int live_communicators();
// Communicators that were aborted since the process started.
int aborted_communicators();

}  // namespace cuda_shim
