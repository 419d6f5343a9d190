// Describes the operation that a rank enters, so that ranks that disagree get an error at once instead of hanging. It is stored
// in memory that the ranks share, so it is trivially copyable and has no pointers.
#pragma once

#include <cstdint>
#include <string>

#include "comm/process_group.h"

namespace trivet::comm {

enum class Occasion : uint8_t { Operation, Subgroup, Close };  // the last two do not use `operation`

struct OperationHeader {
  int64_t count = 0;    // elements of the data, of one shard, or of what one rank sends another in all_to_all;
                        // 0 in all_to_all_v
  int32_t root = -1;    // broadcast: root; send and receive: the peer; subgroup: a digest of name and members
  uint32_t number = 0;  // counts calls of one kind in the group: collectives; subgroup and close; messages between two ranks
  Operation operation = Operation::Barrier;
  DType dtype = DType::Float32;
  ReduceOp reduce = ReduceOp::Sum;
  Occasion occasion = Occasion::Operation;

  bool operator==(const OperationHeader&) const = default;
};

// "all_reduce of 1048576 float32", "all_reduce (max) of 1 int64", "broadcast of 10 int64 from rank 2", "barrier",
// "all_to_all_v of float32"
std::string to_string(const OperationHeader& header);

}  // namespace trivet::comm
