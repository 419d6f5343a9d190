// The time of collectives by the alpha-beta model (Thakur, Rabenseifner, Gropp 2005; Hockney 1994): a message of S bytes takes
// alpha + S beta, and reducing what arrives takes gamma per byte. There are n ranks, and each sends and receives one message at
// a time.
//
// S is always the size of the whole tensor on a rank: the result of an all_gather, the input of a reduce_scatter, what a rank
// sends and keeps in an all_to_all.
#pragma once

#include <cstdint>

namespace trivet::autotune {

struct LinkRates {
  double alpha = 0;  // seconds per message
  double beta = 0;   // seconds per byte
  double gamma = 0;  // seconds per byte that is reduced
};

// 2 (n-1) alpha + 2 (n-1)/n S beta + (n-1)/n S gamma
double ring_all_reduce(int64_t ranks, double bytes, const LinkRates& link);
// (n-1) alpha + (n-1)/n S beta; the reduction adds (n-1)/n S gamma
double ring_all_gather(int64_t ranks, double bytes, const LinkRates& link);
double ring_reduce_scatter(int64_t ranks, double bytes, const LinkRates& link);
// (n-1) alpha + (n-1)/n S beta: in pairs
double pairwise_all_to_all(int64_t ranks, double bytes, const LinkRates& link);

// Two levels: `inner` ranks of a node share `inside`, and each of them talks to its counterparts on the other nodes over its
// own `outside`.
//
//   all_reduce      reduce_scatter inside, all_reduce of the S / inner outside, all_gather inside
//   all_gather      outside of S / inner, then inside; a reduce_scatter goes the other way round
struct Nodes {
  int64_t inner = 1, nodes = 1;  // ranks per node; nodes
  LinkRates inside, outside;
};
double two_level_all_reduce(const Nodes& nodes, double bytes);
double two_level_all_gather(const Nodes& nodes, double bytes);
double two_level_reduce_scatter(const Nodes& nodes, double bytes);

}  // namespace trivet::autotune
