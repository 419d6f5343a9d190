#include "comm/operation_header.h"

#include <fmt/format.h>

namespace trivet::comm {

std::string to_string(const OperationHeader& header) {
  if (header.occasion == Occasion::Close) return "close";
  if (header.occasion == Occasion::Subgroup)
    return fmt::format("subgroup (members {:08x})", static_cast<uint32_t>(header.root));
  if (header.operation == Operation::Barrier) return "barrier";
  const bool reduces = header.operation == Operation::AllReduce || header.operation == Operation::ReduceScatter;
  std::string text(name_of(header.operation));
  if (reduces && header.reduce == ReduceOp::Max) text += " (max)";
  if (reduces && header.reduce == ReduceOp::TreeSum) text += " (tree sum)";
  if (header.operation == Operation::AllToAllV) return fmt::format("{} of {}", text, name_of(header.dtype));
  text += fmt::format(" of {} {}", header.count, name_of(header.dtype));
  if (header.operation == Operation::Send) text += fmt::format(" to rank {}", header.root);
  if (header.operation == Operation::Broadcast || header.operation == Operation::Receive)
    text += fmt::format(" from rank {}", header.root);
  return text;
}

}  // namespace trivet::comm
