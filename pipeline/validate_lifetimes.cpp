#include <fmt/format.h>

#include <set>
#include <stdexcept>

#include "pipeline/validate.h"

namespace trivet::pipeline {

void validate_lifetimes(const Program& program, const BlockParameters& parameters) {
  const auto has = [](const std::vector<int64_t>& elements, int block) { return elements.at(block) > 0; };
  std::set<int> whole, incomplete;
  std::set<std::pair<int, int>> on_host;  // (block, microbatch) of inputs
  for (const Instruction& i : program) {
    const auto fail = [&](const std::string& why) { throw std::logic_error(fmt::format("program: {} {}", to_string(i), why)); };
    if (i.op == Op::Unshard && !whole.insert(i.block).second) fail("gathers weights that are already whole");
    if (i.op == Op::Reshard && whole.erase(i.block) == 0) fail("releases weights that are not whole");
    if (i.op == Op::Reduce) incomplete.erase(i.block);
    if (i.op == Op::Offload) on_host.emplace(i.block, i.microbatch);
    if (i.op == Op::Fetch && on_host.erase({i.block, i.microbatch}) == 0) fail("fetches an input that is not in host memory");
    if (i.op != Op::Forward && computes(i.op) && on_host.count({i.block, i.microbatch}))
      fail("needs its input, which is in host memory; a FETCH is missing");
    if (!computes(i.op)) continue;
    for (int block : parameters.weights_of.at(i.block))
      if (needs_weights(i.op) && has(parameters.sharded_elements, block) && !whole.count(block))
        fail(fmt::format("uses the weights of block {} while they are sharded; an UNSHARD is missing", block));
    for (int block : parameters.gradients_of.at(i.block))
      if (makes_weight_gradients(i.op) && has(parameters.gradient_elements, block)) incomplete.insert(block);
  }
  if (!whole.empty()) throw std::logic_error(fmt::format("program: block {} is still whole at the end", *whole.begin()));
  if (!incomplete.empty())
    throw std::logic_error(
        fmt::format("program: the gradients of block {} are never reduced after they are complete", *incomplete.begin()));
}

}  // namespace trivet::pipeline
