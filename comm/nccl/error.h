// Turns NCCL's errors into CommError with NCCL's own text, its version and a next step.
#pragma once

#include <nccl.h>

#include <exception>
#include <string>

#include "comm/rank_in_group.h"
#include "core/error.h"

namespace trivet::comm {

// "2.28.9"
std::string nccl_version_text(int code);

// The error with which `during` failed. `code` is for errors that a network or a peer can cause; a call that NCCL rejects as
// invalid is our defect (std::logic_error).
std::exception_ptr nccl_error(const RankInGroup& self, const std::string& during, ncclResult_t result,
                              const std::string& detail, ExitCode code);

}  // namespace trivet::comm
