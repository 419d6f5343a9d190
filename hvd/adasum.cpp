#include "hvd/adasum.h"

#include <numeric>

namespace trivet::hvd {
namespace {

struct Products {  // products of two vectors
  double ab = 0, aa = 0, bb = 0;
};

template <typename T>
Products products(std::span<const T> a, std::span<const T> b) {
  Products sums;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    sums.ab += x * y;
    sums.aa += x * x;
    sums.bb += y * y;
  }
  return sums;
}

double weight(double product, double square) { return square > 0 ? 1 - product / (2 * square) : 1; }

// a = adasum(a, b)
template <typename T>
void add_pair(std::span<T> a, std::span<const T> b, const Products& of_whole) {
  const double of_a = weight(of_whole.ab, of_whole.aa), of_b = weight(of_whole.ab, of_whole.bb);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(of_a * a[i] + of_b * b[i]);
}

template <typename T>
void adasum_of(std::vector<std::span<T>> pieces, std::span<const int64_t> lengths, const SumOverRanks& sum) {
  static_assert(sizeof(Products) == 3 * sizeof(double));
  std::vector<int64_t> begins(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), int64_t{0});
  while (pieces.size() > 1) {
    const size_t pairs = pieces.size() / 2;
    std::vector<Products> sums;  // by pair and tensor
    const auto part = [&](size_t piece, size_t tensor) { return pieces[piece].subspan(begins[tensor], lengths[tensor]); };
    for (size_t pair = 0; pair < pairs; ++pair)
      for (size_t t = 0; t < lengths.size(); ++t) sums.push_back(products<T>(part(2 * pair, t), part(2 * pair + 1, t)));
    sum({&sums.data()->ab, 3 * sums.size()});
    for (size_t pair = 0; pair < pairs; ++pair)
      for (size_t t = 0; t < lengths.size(); ++t)
        add_pair<T>(part(2 * pair, t), part(2 * pair + 1, t), sums[pair * lengths.size() + t]);
    for (size_t piece = 0; 2 * piece < pieces.size(); ++piece) pieces[piece] = pieces[2 * piece];
    pieces.resize((pieces.size() + 1) / 2);
  }
}

}  // namespace

void adasum(std::vector<std::span<float>> pieces, std::span<const int64_t> lengths, const SumOverRanks& sum) {
  adasum_of(std::move(pieces), lengths, sum);
}
void adasum(std::vector<std::span<double>> pieces, std::span<const int64_t> lengths, const SumOverRanks& sum) {
  adasum_of(std::move(pieces), lengths, sum);
}

}  // namespace trivet::hvd
