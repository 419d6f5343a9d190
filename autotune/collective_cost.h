// What a collective takes by the alpha-beta model (Thakur, Rabenseifner, Gropp 2005; Hockney 1994): a message of S bytes takes
// alpha + S beta, and what arrives is added in gamma a byte. n ranks, one message in and one out of a rank at a time.
//
// S is always what a rank has when the operation is whole: of an all_gather its result, of a reduce_scatter its input, of an
// all_to_all what a rank sends and keeps.
#pragma once

#include <cstdint>

namespace trivet::autotune {

struct Link {
  double alpha = 0;  // seconds a message
  double beta = 0;   // seconds a byte
  double gamma = 0;  // seconds a byte that is reduced
};

// 2 (n-1) alpha + 2 (n-1)/n S beta + (n-1)/n S gamma
double ring_all_reduce(int64_t ranks, double bytes, const Link& link);
// (n-1) alpha + (n-1)/n S beta, and for the reduction (n-1)/n S gamma
double ring_all_gather(int64_t ranks, double bytes, const Link& link);
double ring_reduce_scatter(int64_t ranks, double bytes, const Link& link);
// log2(n) (alpha + S beta + S gamma)
double recursive_doubling_all_reduce(int64_t ranks, double bytes, const Link& link);
// 2 log2(n) alpha + 2 (n-1)/n S beta + (n-1)/n S gamma: halving, then doubling
double rabenseifner_all_reduce(int64_t ranks, double bytes, const Link& link);
// 2 log2(n) alpha + 2 S beta: a double binary tree whose messages are cut into pieces that follow each other
double tree_all_reduce(int64_t ranks, double bytes, const Link& link);
// 2 alpha + (n+1)/n S beta: the switch adds what ranks send and copies the sum to all of them (NVLS; SHARP, Graham et al.
// 2016). n + 1 pieces of S / n on a rank's link in place of a ring's 2 (n-1). Of an all_reduce only.
double in_switch_all_reduce(int64_t ranks, double bytes, const Link& link);
// log2(n) (alpha + S beta)
double tree_broadcast(int64_t ranks, double bytes, const Link& link);
// (log2(n) + n - 1) alpha + 2 (n-1)/n S beta: scatter, then all_gather
double scattered_broadcast(int64_t ranks, double bytes, const Link& link);
// (n-1) alpha + (n-1)/n S beta: in pairs
double pairwise_all_to_all(int64_t ranks, double bytes, const Link& link);

// Two levels: `inner` ranks of a node share `inside`, and each of them talks to its counterparts on the other nodes by its own
// `outside`.
//
//   all_reduce      reduce_scatter inside, all_reduce of the S / inner outside, all_gather inside
//   all_gather      outside of S / inner, then inside; reduce_scatter the other way round
struct Nodes {
  int64_t inner = 1, nodes = 1;  // ranks a node, nodes
  Link inside, outside;
};
double two_level_all_reduce(const Nodes& nodes, double bytes);
double two_level_all_gather(const Nodes& nodes, double bytes);
double two_level_reduce_scatter(const Nodes& nodes, double bytes);
// Of what a rank sends in a two-level operation, the share that leaves its node: (k-1)/(n-1) for k nodes, n ranks.
double share_leaving_node(const Nodes& nodes);

// What nccl-tests call bus bandwidth: S / time x 2 (n-1)/n for all_reduce, (n-1)/n for reduce_scatter, all_gather and
// all_to_all, 1 for broadcast.
double all_reduce_bus_factor(int64_t ranks);
double all_gather_bus_factor(int64_t ranks);

}  // namespace trivet::autotune
