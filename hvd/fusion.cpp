#include "hvd/fusion.h"

#include <map>
#include <utility>

namespace trivet::hvd {

std::vector<std::vector<size_t>> fuse(std::span<const Agreed> ready, int64_t threshold_bytes) {
  struct Open {  // the last batch of its kind
    size_t batch = 0;
    int64_t bytes = 0;
  };
  std::vector<std::vector<size_t>> batches;
  std::map<std::pair<DType, ReduceOp>, Open> open;
  for (size_t i = 0; i < ready.size(); ++i) {
    const Request& request = ready[i].any();
    const bool fusible = ready[i].problem.empty() && request.collective == Collective::Allreduce;
    if (!fusible) {
      batches.push_back({i});
      continue;
    }
    const DType wire = wire_dtype(request);
    const ReduceOp op = request.op == ReduceOp::Average ? ReduceOp::Sum : request.op;
    const int64_t bytes = request.shape.elements() * size_of(wire);
    const auto [found, is_new] = open.try_emplace({wire, op});
    Open& last = found->second;
    if (is_new || last.bytes + bytes > threshold_bytes) {
      last = {.batch = batches.size()};
      batches.emplace_back();
    }
    last.bytes += bytes;
    batches[last.batch].push_back(i);
  }
  return batches;
}

}  // namespace trivet::hvd
