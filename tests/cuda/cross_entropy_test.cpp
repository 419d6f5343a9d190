// Compares cross-entropy with the CPU's. The device computes exponentials in its own way and adds up a row from different
// partial sums, so that a loss differs by some roundings of float32. What layouts rely on is exact: a row's bits do not depend
// on how it is cut.
#include "tests/cuda/twins.h"

namespace trivet::kernels::cross_entropy_test {
namespace {

struct Case {
  DType logits, dlogits;
  int64_t rows, columns, elements_before;
};

// Rows that are read in packs, rows that each begin at a different offset in a pack, and types that are read one element at a
// time.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {5, 37}, {3, 8200}})
      all.push_back({dtype, dtype, rows, columns, columns == 37 ? 1 : 0});
  all.push_back({DType::Float32, DType::BFloat16, 4, 64, 0});
  all.push_back({DType::Float32, DType::Float16, 4, 67, 0});
  all.push_back({DType::BFloat16, DType::Float32, 4, 64, 0});
  all.push_back({DType::BFloat16, DType::BFloat16, 2, 60000, 3});  // too long to be kept in shared memory
  return all;
}

std::string name(const Case& c) {
  return text(c.logits) + " to " + text(c.dlogits) + " " + std::to_string(c.rows) + " x " + std::to_string(c.columns);
}
double near(const Case& c) { return 64 * sum_unit(c.logits) + (c.logits == DType::Float64 ? 0 : 1e-6); }

bool masked(const Case& c, int64_t element) { return c.columns > 40 && element % 3 == 0; }

// Targets are columns that are not masked; row 2 has none and does not count.
Twin targets_of(const Case& c) {
  std::vector<int32_t> targets;
  for (int64_t row = 0; row < c.rows; ++row) {
    int64_t column = philox(8, static_cast<uint64_t>(row), 0)[0] % c.columns;
    while (masked(c, row * c.columns + column)) column = (column + 1) % c.columns;
    targets.push_back(row == 2 ? -1 : static_cast<int32_t>(column));
  }
  return Twin::of(targets, {c.rows});
}

Twin logits_of(const Case& c) {
  HostTensor logits = HostTensor::random(c.logits, {c.rows, c.columns}, 1);
  for (int64_t e = 0; e < logits.elements(); ++e) logits.set(e, logits.at(e) * 8);
  for (int64_t e = 0; e < logits.elements(); ++e)
    if (masked(c, e)) logits.set(e, -static_cast<double>(INFINITY));
  return Twin(logits, c.elements_before);
}

Twin loss_before() { return Twin::of<double>({0.5, 7}, {2}); }

TEST(CudaCrossEntropy, LossAndGradientAreNearTheCpus) {
  for (const Case& c : cases())
    for (const bool in_place : {false, true}) {
      if (in_place && c.logits != c.dlogits) continue;
      Twin logits = logits_of(c), targets = targets_of(c), loss = loss_before(), scale = number_of(0.75);
      Twin apart = Twin::poisoned(c.dlogits, {c.rows, c.columns});
      Twin& dlogits = in_place ? logits : apart;
      const auto make = [&](const auto& view) {
        return CrossEntropy{.logits = view(logits),
                            .targets = view(targets),
                            .dlogits = view(dlogits),
                            .gradient_scale = number(view, scale) / 3,
                            .loss = view(loss)};
      };
      run_twins<CrossEntropy>(make);
      dlogits.expect_near("dlogits " + name(c), 1e-7, near(c) + 2 * half_unit(c.dlogits));
      loss.expect_near("loss " + name(c), 0, near(c));
    }
}

TEST(CudaCrossEntropy, ALossAloneNeedsNoGradient) {
  const Case c{DType::BFloat16, DType::BFloat16, 4, 203, 0};
  Twin logits = logits_of(c), targets = targets_of(c), loss = loss_before();
  const auto make = [&](const auto& view) {
    return CrossEntropy{.logits = view(logits), .targets = view(targets), .loss = view(loss)};
  };
  run_twins<CrossEntropy>(make);
  loss.expect_near("loss", 0, near(c));
  logits.expect_same_bits("logits");
}

TEST(CudaCrossEntropy, GivesLossesOfRowsAndTakesFactors) {
  for (const Case& c : cases()) {
    std::vector<double> values;
    for (int64_t row = 0; row < c.rows; ++row) values.push_back(row % 2 == 0 ? -1.5 : 0.25);
    Twin logits = logits_of(c), targets = targets_of(c), loss = loss_before(), factors = Twin::of<double>(values, {c.rows});
    Twin dlogits = Twin::poisoned(c.dlogits, {c.rows, c.columns}), losses = Twin::poisoned(DType::Float64, {c.rows});
    const auto make = [&](const auto& view) {
      CrossEntropy args{.logits = view(logits),
                        .targets = view(targets),
                        .dlogits = view(dlogits),
                        .gradient_scale = 0.5,
                        .row_losses = view(losses),
                        .row_factors = view(factors)};
      if (c.rows % 2 == 1) args.loss = view(loss);
      return args;
    };
    run_twins<CrossEntropy>(make);
    dlogits.expect_near("dlogits " + name(c), 1e-7, near(c) + 2 * half_unit(c.dlogits));
    losses.expect_near("row_losses " + name(c), near(c), near(c));
    loss.expect_near("loss " + name(c), 0, near(c));
  }
}

TEST(CudaCrossEntropy, TheGradientThroughASoftCapIsNearTheCpus) {
  for (const Case& c : cases()) {
    HostTensor below_cap = HostTensor::random(c.logits, {c.rows, c.columns}, 1);
    for (int64_t e = 0; e < below_cap.elements(); ++e) below_cap.set(e, below_cap.at(e) * 8);
    Twin logits(below_cap, c.elements_before), targets = targets_of(c);
    Twin dlogits = Twin::poisoned(c.dlogits, {c.rows, c.columns});
    const auto make = [&](const auto& view) {
      return CrossEntropy{.logits = view(logits), .targets = view(targets), .dlogits = view(dlogits), .soft_cap = 9};
    };
    run_twins<CrossEntropy>(make);
    dlogits.expect_near("dlogits " + name(c), 1e-7, near(c) + 2 * half_unit(c.dlogits));
  }
}

TEST(CudaCrossEntropy, CountsTheCpusRightRows) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t rows : {0, 1, 300}) {
      std::vector<int32_t> classes;
      for (int64_t row = 0; row < rows; ++row) classes.push_back(static_cast<int32_t>(row % 4) - 1);
      Twin logits = Twin::random(dtype, {rows, 3}, 1), correct = number_of(7);
      Twin targets = Twin::of<int32_t>(classes, {rows});
      run_twins<CountCorrect>([&](const auto& view) {
        return CountCorrect{.logits = view(logits), .targets = view(targets), .correct = view(correct)};
      });
      correct.expect_same_bits("count_correct " + text(dtype));
      EXPECT_TRUE(rows < 300 || correct.expected().at(0) > 7);
    }
}

TEST(CudaCrossEntropy, ATargetThatIsNoColumnMakesNaN) {
  const Twin targets = Twin::of<int32_t>({1, 5}, {2});
  const DeviceTensor logits(HostTensor::random(DType::Float32, {2, 5}, 1)), loss(HostTensor(DType::Float64, {2}));
  const TestLaunch launch(2 * 8);
  cuda::compute(
      CrossEntropy{.logits = logits.view(), .targets = targets.device(), .dlogits = logits.view(), .loss = loss.view()},
      launch.launch());
  EXPECT_TRUE(std::isnan(loss.read().at(0)));
  const HostTensor gradient = logits.read();
  for (int64_t e = 0; e < 10; ++e) EXPECT_EQ(std::isnan(gradient.at(e)), e >= 5);
}

// The columns [first, first + count) of a row's logits, as a rank holds them.
Twin part_of(const Twin& whole, int64_t rows, int64_t columns, int64_t first, int64_t count) {
  HostTensor part(whole.expected().view().dtype, {rows, count});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t v = 0; v < count; ++v) part.set(row * count + v, whole.expected().at(row * columns + first + v));
  return Twin(part);
}

TEST(CudaCrossEntropy, PartsOfRowsAreNearTheCpus) {
  for (const Case& c : cases()) {
    if (c.columns < 30 || c.columns > 10000) continue;
    const Twin whole = logits_of(c);
    const int64_t first = c.columns / 3, count = c.columns / 2;
    Twin logits = part_of(whole, c.rows, c.columns, first, count), targets = targets_of(c);
    const DType statistics = statistics_of(c.logits);
    Twin maximum = Twin::poisoned(statistics, {c.rows}), sums = Twin::poisoned(statistics, {2, c.rows});
    const TableRows columns{.first = first, .vocabulary = c.columns};
    run_twins<RowMaxima>([&](const auto& view) { return RowMaxima{view(logits), view(maximum)}; });
    maximum.expect_same_bits("row_maxima " + name(c));
    const auto sum = [&](const auto& view) {
      return RowSums{
          .logits = view(logits), .targets = view(targets), .maximum = view(maximum), .sums = view(sums), .columns = columns};
    };
    run_twins<RowSums>(sum);
    sums.expect_near("row_sums " + name(c), 0, near(c));
    Twin dlogits = Twin::poisoned(c.dlogits, {c.rows, count}), loss = loss_before();
    Twin losses = Twin::poisoned(DType::Float64, {c.rows}), factors = Twin::random(DType::Float64, {c.rows}, 6);
    const auto finish = [&](const auto& view) {
      return CrossEntropyOfPart{.logits = view(logits),
                                .targets = view(targets),
                                .maximum = view(maximum),
                                .sums = view(sums),
                                .dlogits = view(dlogits),
                                .columns = columns,
                                .gradient_scale = 0.5,
                                .loss = view(loss),
                                .row_losses = view(losses),
                                .row_factors = view(factors),
                                .soft_cap = c.columns > 40 ? 0.0 : 9.0};  // no cap gives infinite logits
    };
    run_twins<CrossEntropyOfPart>(finish);
    dlogits.expect_near("dlogits " + name(c), 1e-7, near(c) + 2 * half_unit(c.dlogits));
    loss.expect_near("loss " + name(c), 0, near(c));
    losses.expect_near("row_losses " + name(c), near(c), near(c));
  }
}

// A row in eight chunks, one of them empty, on one rank has the same bits as in two parts of four chunks that a tree joins.
TEST(CudaCrossEntropy, ChunksMakeARowTheSameHoweverItIsCut) {
  for (const DType dtype : kFloatTypes) {
    const Case c{dtype, dtype, 3, 101, 0};
    Twin logits = logits_of(c), targets = targets_of(c);
    const std::vector<int64_t> ends{13, 26, 26, 52, 65, 78, 91, 101}, left{13, 26, 26, 52}, right{13, 26, 39, 49};
    const DType statistics = statistics_of(dtype);
    const auto sums_of = [&](Twin& part, int64_t first, const std::vector<int64_t>& chunk_ends) {
      Twin maximum = Twin::of(std::vector<int64_t>{}, {0}), sums = Twin::poisoned(statistics, {2, c.rows});
      maximum = Twin(HostTensor::filled(statistics, {c.rows}, 8));
      const auto make = [&](const auto& view) {
        return RowSums{.logits = view(part),
                       .targets = view(targets),
                       .maximum = view(maximum),
                       .sums = view(sums),
                       .columns = {.first = first, .vocabulary = c.columns},
                       .chunk_ends = chunk_ends};
      };
      run_twins<RowSums>(make);
      sums.expect_near("row_sums", 0, near(c));
      return sums.read();
    };
    Twin first = part_of(logits, c.rows, c.columns, 0, 52), second = part_of(logits, c.rows, c.columns, 52, 49);
    const HostTensor whole = sums_of(logits, 0, ends), one = sums_of(first, 0, left), other = sums_of(second, 52, right);
    for (int64_t row = 0; row < c.rows; ++row) {
      HostTensor joined(statistics, {1});
      joined.set(0, one.at(row) + other.at(row));
      EXPECT_EQ(joined.at(0), whole.at(row)) << text(dtype);
    }
    Twin loss = loss_before(), dlogits = Twin::poisoned(dtype, {c.rows, c.columns});
    const auto make = [&](const auto& view) {
      return CrossEntropy{
          .logits = view(logits), .targets = view(targets), .dlogits = view(dlogits), .chunk_ends = ends, .loss = view(loss)};
    };
    run_twins<CrossEntropy>(make);
    dlogits.expect_near("dlogits", 1e-7, near(c) + 2 * half_unit(dtype));
    loss.expect_near("loss", 0, near(c));
  }
}

TEST(CudaCrossEntropy, RowsHaveNoOrder) {
  in_every_order([] {
    const Case c{DType::BFloat16, DType::BFloat16, 30, 4099, 0};
    Twin logits = logits_of(c), targets = targets_of(c), loss = loss_before();
    const auto make = [&](const auto& view) {
      return CrossEntropy{.logits = view(logits), .targets = view(targets), .dlogits = view(logits), .loss = view(loss)};
    };
    run_twins<CrossEntropy>(make);
    logits.expect_near("dlogits", 1e-7, near(c) + 2 * half_unit(c.dlogits));
    loss.expect_near("loss", 0, near(c));
  });
}

}  // namespace
}  // namespace trivet::kernels::cross_entropy_test
