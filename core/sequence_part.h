// Which tokens of each sequence one of several context ranks has.
//
//   Cut::InOrder    rank r of c has [r S / c, (r + 1) S / c)
//   Cut::Balanced   rank r of c has the chunks r and 2c - 1 - r of 2c, so that all have as many pairs of a token and one before
//                   it: the zigzag of ring attention (Liu et al. 2023, arXiv:2310.01889)
//
// With neighbours, each run of so many ranks is cut off as one rank would be, and they share its tokens in order. 16 tokens, 4
// ranks, 2 neighbours, balanced: ranks 0 and 1 have the chunks 0-3 and 12-15 of 4, so rank 0 has 0-3 and rank 1 12-15; rank 2
// has 4-7, and rank 3 8-11.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/enum_names.h"

namespace trivet {

// Tokens of a sequence, [begin, end).
struct TokenRange {
  int64_t begin = 0, end = 0;

  int64_t count() const { return end - begin; }
  bool overlaps(int64_t first, int64_t tokens) const { return first < end && begin < first + tokens; }
};

// One or two ranges, in the order of the sequence; the second may be empty. Both empty: all tokens of the sequence.
struct OwnTokens {
  std::array<TokenRange, 2> ranges{};

  // Iterates over the ranges that are not empty.
  const TokenRange* begin() const { return ranges.data(); }
  const TokenRange* end() const { return ranges.data() + pieces(); }
  int pieces() const { return ranges[1].count() > 0 ? 2 : 1; }
  // Returns `count` of these tokens, from the one at `first` on.
  OwnTokens within(int64_t first, int64_t count) const {
    const auto [one, two] = ranges;
    const auto from = [&](const TokenRange& range, int64_t before) {
      const int64_t begin = range.begin + std::clamp<int64_t>(first - before, 0, range.count());
      return TokenRange{begin, range.begin + std::clamp<int64_t>(first + count - before, 0, range.count())};
    };
    const TokenRange of_one = from(one, 0), of_two = from(two, one.count());
    if (of_one.count() == 0) return {{{of_two, {}}}};
    return {{{of_one, of_two.count() > 0 ? of_two : TokenRange{}}}};
  }
  bool all() const { return ranges[0].count() == 0; }
  bool any_of(int64_t first, int64_t tokens) const {
    return all() || ranges[0].overlaps(first, tokens) || ranges[1].overlaps(first, tokens);
  }
};

// How context ranks share attention: they exchange tokens for heads (model/head_exchange.h), gather keys and values
// (model/gathered_attention.h), or hand them on (model/ring_attention.h). UlyssesRing: neighbours exchange tokens for heads,
// and then hand keys and values of those heads on to the next run of neighbours (Fang and Zhao 2024, arXiv:2405.07719). Auto:
// Ulysses if heads allow it, else Gather.
enum class ContextKind : uint8_t { Auto, Ulysses, Gather, Ring, UlyssesRing };
template <>
struct EnumNames<ContextKind> {
  static constexpr std::array<std::pair<std::string_view, ContextKind>, 5> table{{{"auto", ContextKind::Auto},
                                                                                  {"ulysses", ContextKind::Ulysses},
                                                                                  {"gather", ContextKind::Gather},
                                                                                  {"ring", ContextKind::Ring},
                                                                                  {"ulysses_ring", ContextKind::UlyssesRing}}};
};

struct SequencePart {
  enum class Cut : uint8_t { InOrder, Balanced };
  int rank = 0, ranks = 1;
  Cut cut = Cut::InOrder;
  int neighbours = 1;  // divides the ranks

  // The tokens of a rank in sequences of `length`, which the ranks divide. If twice the runs of neighbours do not, no cut is
  // balanced.
  OwnTokens tokens(int64_t length) const { return tokens_of(rank, length); }
  OwnTokens tokens_of(int64_t other, int64_t length) const {
    const int64_t own = length / ranks;
    return tokens_of_run(other / neighbours, length).within(other % neighbours * own, own);
  }

 private:
  OwnTokens tokens_of_run(int64_t run, int64_t length) const {
    const int64_t runs = ranks / neighbours;
    const bool two = cut == Cut::Balanced && runs > 1 && length % (2 * runs) == 0;
    const int64_t chunk = length / (two ? 2 * runs : runs), first = run * chunk, last = (2 * runs - 1 - run) * chunk;
    return {{{{first, first + chunk}, two ? TokenRange{last, last + chunk} : TokenRange{}}}};
  }
};

}  // namespace trivet
