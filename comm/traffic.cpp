#include "comm/traffic.h"

namespace trivet::comm {

int64_t bytes_sent(const OperationHeader& header, int rank, int size) {
  const int64_t bytes = header.count * size_of(header.dtype);  // the data's, a shard's, or what one rank sends another
  switch (header.operation) {
    case Operation::AllReduce: return 2 * (size - 1) * bytes / size;
    case Operation::ReduceScatter:
    case Operation::AllGather:
    case Operation::AllToAll: return (size - 1) * bytes;
    case Operation::Broadcast: return rank == header.root ? (size - 1) * bytes : 0;
    case Operation::Send: return bytes;
    case Operation::AllToAllV:  // see below
    case Operation::Receive:
    case Operation::Barrier: return 0;
  }
  return 0;
}

int64_t bytes_sent(const ExchangeCounts& counts, DType dtype, int rank) {
  int64_t elements = 0;
  for (size_t to = 0; to < counts.sent.size(); ++to)
    if (to != static_cast<size_t>(rank)) elements += counts.sent[to];
  return elements * size_of(dtype);
}

}  // namespace trivet::comm
