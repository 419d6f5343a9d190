// Adasum (Maleki et al. 2020, "Scaling Distributed Training with Adaptive Summation"): a sum that does not grow where the
// ranks' gradients point the same way.
//
//   adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b        equal vectors: their mean; orthogonal ones: their sum
//
// A zero vector is left out: adasum(a, 0) = a. Ranks are combined as a tree of neighbours, ((0, 1), (2, 3)), ...; where their
// number is odd, the last one goes up to the next level. So any number of ranks is accepted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace trivet::hvd {

// Adds up, over all ranks, numbers of which each rank has a part.
using SumOverRanks = std::function<void(std::span<double>)>;

// Combines the tensors of all ranks, of which this rank has one slice: pieces[r] is that slice of rank r's tensors, one tensor
// after another, and lengths[t] is the number of its elements in tensor t. The result is in pieces[0]; the other pieces are
// scratch. Inner products are in float64. Collective: `sum` is called once for each level of the tree.
void adasum(std::vector<std::span<float>> pieces, std::span<const int64_t> lengths, const SumOverRanks& sum);
void adasum(std::vector<std::span<double>> pieces, std::span<const int64_t> lengths, const SumOverRanks& sum);

}  // namespace trivet::hvd
