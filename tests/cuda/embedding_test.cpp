// Embedding and its gradients have the CPU's bits: rows of dy are added in token order, whatever order the device finds them
// in.
#include "tests/cuda/twins.h"

namespace trivet::kernels::embedding_test {
namespace {

// Token ids of which every third is `common`.
Twin tokens_of(int64_t sequences, int64_t positions, int64_t vocabulary, int32_t common, uint64_t seed) {
  std::vector<int32_t> ids(sequences * positions);
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto random = philox(seed, t, 0)[0] % static_cast<uint32_t>(vocabulary);
    ids[t] = t % 3 == 0 ? common : static_cast<int32_t>(random);
  }
  return Twin::of(ids, {sequences, positions});
}

struct Case {
  DType dtype;
  int64_t sequences, positions, vocabulary, hidden, elements_before;
};

// Rows with no tokens, with a few and with over 32; hidden sizes that are and are not read in packs, with one and several
// blocks of columns.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : kFloatTypes) {
    all.push_back({dtype, 0, 4, 5, 8, 0});
    all.push_back({dtype, 1, 1, 1, 1, 0});
    all.push_back({dtype, 2, 60, 300, 72, 0});
    all.push_back({dtype, 2, 60, 20, 33, 0});
    all.push_back({dtype, 1, 100, 7, 16, 1});
  }
  return all;
}

std::string name(const Case& c) {
  return text(c.dtype) + " " + std::to_string(c.sequences * c.positions) + " tokens, hidden " + std::to_string(c.hidden);
}

TEST(CudaEmbedding, LooksRowsUp) {
  for (const Case& c : cases())
    for (const auto& [positions, with_places] : {std::pair{false, false}, {true, false}, {true, true}})
      for (const bool part : {false, true}) {
        Twin tokens = tokens_of(c.sequences, c.positions, c.vocabulary, 0, 1);
        const TableRows rows = part ? TableRows{.first = c.vocabulary / 3, .vocabulary = c.vocabulary} : TableRows{};
        Twin table = Twin::random(c.dtype, {part ? c.vocabulary / 2 : c.vocabulary, c.hidden}, 2, c.elements_before);
        Twin table_of_positions = Twin::random(c.dtype, {c.positions + 1, c.hidden}, 3);
        Twin places = tokens_of(c.sequences, c.positions, c.positions + 1, 0, 6);
        Twin out = Twin::poisoned(c.dtype, {c.sequences, c.positions, c.hidden});
        const auto make = [&](const auto& view) {
          Embedding args{.tokens = view(tokens), .table = view(table), .out = view(out), .rows = rows};
          if (positions) args.positions = view(table_of_positions);
          if (with_places) args.places = view(places);
          return args;
        };
        run_twins<Embedding>(make);
        out.expect_same_bits("embedding " + name(c));
      }
}

TEST(CudaEmbedding, TokensOutsideTheVocabularyBecomeNaN) {
  const DeviceTensor table(HostTensor::random(DType::BFloat16, {4, 8}, 1));
  const Twin tokens = Twin::of<int32_t>({3, 4, -1}, {1, 3});
  const DeviceTensor out(HostTensor(DType::BFloat16, {1, 3, 8}));
  cuda::compute(Embedding{.tokens = tokens.device(), .table = table.view(), .out = out.view()}, TestLaunch(0).launch());
  const HostTensor got = out.read();
  for (int64_t e = 0; e < 24; ++e) EXPECT_EQ(std::isnan(got.at(e)), e >= 8) << e;
}

TEST(CudaEmbedding, GradientsAreAddedInTokenOrder) {
  for (const Case& c : cases())
    for (const bool accumulate : {false, true})
      for (const bool part : {false, true}) {
        Twin tokens = tokens_of(c.sequences, c.positions, c.vocabulary, static_cast<int32_t>(c.vocabulary / 2), 1);
        const TableRows rows = part ? TableRows{.first = c.vocabulary / 3, .vocabulary = c.vocabulary} : TableRows{};
        const DType gradient = c.dtype != DType::Float64 && accumulate ? DType::Float32 : c.dtype;
        const auto target = [&](const Shape& shape) {
          return accumulate ? Twin::random(gradient, shape, 5) : Twin::poisoned(gradient, shape);
        };
        Twin dy = Twin::random(c.dtype, {c.sequences, c.positions, c.hidden}, 4, c.elements_before);
        Twin dtable = target({part ? c.vocabulary / 2 : c.vocabulary, c.hidden}), dpositions = target({c.positions, c.hidden});
        const auto make = [&](const auto& view) {
          return EmbeddingBackward{.tokens = view(tokens),
                                   .dy = view(dy),
                                   .dtable = view(dtable),
                                   .dpositions = view(dpositions),
                                   .accumulate_table = accumulate,
                                   .accumulate_positions = accumulate,
                                   .rows = rows};
        };
        run_twins<EmbeddingBackward>(make);
        dtable.expect_same_bits("dtable " + name(c));
        dpositions.expect_same_bits("dpositions " + name(c));
      }
}

// A warp sorts up to 32 tokens of a row, a block sorts more. Several rows are around this limit, on each side of it.
TEST(CudaEmbedding, RowsAroundTheLimitOfAWarpAreAllAddedUp) {
  const int counts[] = {33, 31, 32, 33, 0, 34, 32, 33, 100};
  std::vector<int32_t> ids;
  for (int turn = 0; turn < 100; ++turn)
    for (int row = 0; row < static_cast<int>(std::size(counts)); ++row)
      if (turn < counts[row]) ids.push_back(row);
  const auto positions = static_cast<int64_t>(ids.size());
  Twin tokens = Twin::of<int32_t>(ids, {1, positions}), dy = Twin::random(DType::Float32, {1, positions, 8}, 4);
  Twin dtable = Twin::poisoned(DType::Float32, {static_cast<int64_t>(std::size(counts)), 8});
  const auto make = [&](const auto& view) {
    return EmbeddingBackward{.tokens = view(tokens), .dy = view(dy), .dtable = view(dtable), .accumulate_table = false};
  };
  run_twins<EmbeddingBackward>(make);
  dtable.expect_same_bits("dtable");
}

// One id has more tokens than the bitmap of one pass has bits, in several tiles of rows.
TEST(CudaEmbedding, LongListsAreSortedInWindows) {
  Twin tokens = tokens_of(1, 9000, 4, 2, 1), dy = Twin::random(DType::BFloat16, {1, 9000, 8}, 4);
  Twin dtable = Twin::poisoned(DType::Float32, {4, 8});
  const auto make = [&](const auto& view) {
    return EmbeddingBackward{.tokens = view(tokens), .dy = view(dy), .dtable = view(dtable), .accumulate_table = false};
  };
  run_twins<EmbeddingBackward>(make);
  dtable.expect_same_bits("dtable");
}

TEST(CudaEmbedding, GradientsHaveNoOrder) {
  in_every_order([] {
    Twin tokens = tokens_of(3, 100, 600, 10, 2), dy = Twin::random(DType::Float32, {3, 100, 70}, 4);
    Twin dtable = Twin::random(DType::Float32, {600, 70}, 5);
    const auto make = [&](const auto& view) {
      return EmbeddingBackward{.tokens = view(tokens), .dy = view(dy), .dtable = view(dtable)};
    };
    run_twins<EmbeddingBackward>(make);
    dtable.expect_same_bits("dtable");
  });
}

}  // namespace
}  // namespace trivet::kernels::embedding_test
