// Bytes that a rank sends in one operation, by the formulas of docs/communication.md.
#pragma once

#include "comm/operation_header.h"

namespace trivet::comm {

int64_t bytes_sent(const OperationHeader& header, int rank, int size);
// Returns the same for all_to_all_v.
int64_t bytes_sent(const ExchangeCounts& counts, DType dtype, int rank);

}  // namespace trivet::comm
