#include "autotune/collective_cost.h"

namespace trivet::autotune {
namespace {

double steps(int64_t ranks) { return static_cast<double>(ranks - 1); }
double share(int64_t ranks) { return steps(ranks) / static_cast<double>(ranks); }

}  // namespace

double ring_all_gather(int64_t ranks, double bytes, const LinkRates& link) {
  return steps(ranks) * link.alpha + share(ranks) * bytes * link.beta;
}

double ring_reduce_scatter(int64_t ranks, double bytes, const LinkRates& link) {
  return ring_all_gather(ranks, bytes, link) + share(ranks) * bytes * link.gamma;
}

double ring_all_reduce(int64_t ranks, double bytes, const LinkRates& link) {
  return ring_reduce_scatter(ranks, bytes, link) + ring_all_gather(ranks, bytes, link);
}

double pairwise_all_to_all(int64_t ranks, double bytes, const LinkRates& link) { return ring_all_gather(ranks, bytes, link); }

double two_level_all_gather(const Nodes& n, double bytes) {
  return ring_all_gather(n.nodes, bytes / static_cast<double>(n.inner), n.outside) + ring_all_gather(n.inner, bytes, n.inside);
}

double two_level_reduce_scatter(const Nodes& n, double bytes) {
  return ring_reduce_scatter(n.inner, bytes, n.inside) +
         ring_reduce_scatter(n.nodes, bytes / static_cast<double>(n.inner), n.outside);
}

double two_level_all_reduce(const Nodes& n, double bytes) {
  return ring_reduce_scatter(n.inner, bytes, n.inside) +
         ring_all_reduce(n.nodes, bytes / static_cast<double>(n.inner), n.outside) + ring_all_gather(n.inner, bytes, n.inside);
}

}  // namespace trivet::autotune
