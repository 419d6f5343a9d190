#include "autotune/collective_cost.h"

#include <cmath>

namespace trivet::autotune {
namespace {

double steps(int64_t ranks) { return static_cast<double>(ranks - 1); }
double share(int64_t ranks) { return steps(ranks) / static_cast<double>(ranks); }
double levels(int64_t ranks) { return std::log2(static_cast<double>(ranks)); }

}  // namespace

double ring_all_gather(int64_t ranks, double bytes, const Link& link) {
  return steps(ranks) * link.alpha + share(ranks) * bytes * link.beta;
}

double ring_reduce_scatter(int64_t ranks, double bytes, const Link& link) {
  return ring_all_gather(ranks, bytes, link) + share(ranks) * bytes * link.gamma;
}

double ring_all_reduce(int64_t ranks, double bytes, const Link& link) {
  return ring_reduce_scatter(ranks, bytes, link) + ring_all_gather(ranks, bytes, link);
}

double recursive_doubling_all_reduce(int64_t ranks, double bytes, const Link& link) {
  return levels(ranks) * (link.alpha + bytes * (link.beta + link.gamma));
}

double rabenseifner_all_reduce(int64_t ranks, double bytes, const Link& link) {
  return 2 * levels(ranks) * link.alpha + share(ranks) * bytes * (2 * link.beta + link.gamma);
}

double tree_all_reduce(int64_t ranks, double bytes, const Link& link) {
  if (ranks == 1) return 0;
  return 2 * levels(ranks) * link.alpha + 2 * bytes * link.beta;
}

double in_switch_all_reduce(int64_t ranks, double bytes, const Link& link) {
  if (ranks == 1) return 0;
  return 2 * link.alpha + static_cast<double>(ranks + 1) / static_cast<double>(ranks) * bytes * link.beta;
}

double tree_broadcast(int64_t ranks, double bytes, const Link& link) {
  return levels(ranks) * (link.alpha + bytes * link.beta);
}

double scattered_broadcast(int64_t ranks, double bytes, const Link& link) {
  return (levels(ranks) + steps(ranks)) * link.alpha + 2 * share(ranks) * bytes * link.beta;
}

double pairwise_all_to_all(int64_t ranks, double bytes, const Link& link) { return ring_all_gather(ranks, bytes, link); }

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

double share_leaving_node(const Nodes& n) {
  const int64_t ranks = n.inner * n.nodes;
  return ranks == 1 ? 0 : steps(n.nodes) / steps(ranks);
}

double all_reduce_bus_factor(int64_t ranks) { return 2 * share(ranks); }
double all_gather_bus_factor(int64_t ranks) { return share(ranks); }

}  // namespace trivet::autotune
