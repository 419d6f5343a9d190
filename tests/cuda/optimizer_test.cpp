// Optimizer steps have the CPU's bits: both do the same operations in the same order and round after each.
#include "tests/cuda/twins.h"

namespace trivet::kernels::optimizer_test {
namespace {

struct Case {
  DType gradient, copy;
  int64_t size, elements_before;
  double factor;  // the verdict's; negative: there is no verdict
  bool apply = true;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType gradient : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const int64_t size : {0, 1, 6, 1029})
      all.push_back({gradient, size % 2 == 0 ? DType::BFloat16 : DType::Float16, size, size % 4 == 1 ? 1 : 0, -1});
  all.push_back({DType::BFloat16, DType::Float32, 64, 0, 0.3});
  all.push_back({DType::Float32, DType::Float64, 64, 3, 0.3});
  all.push_back({DType::BFloat16, DType::BFloat16, 64, 0, 0.3, false});
  return all;
}

// Everything a step may read and write.
struct Tensors {
  Twin gradient, master, first, second, copy, verdict;
  Twin lr = number_of(3e-3), beta1 = number_of(0.8), beta2 = number_of(0.95), scale = number_of(0.7);
  Twin correction1 = number_of(bias_correction(0.8, 3)), correction2 = number_of(bias_correction(0.95, 3));

  explicit Tensors(const Case& c)
      : gradient(Twin::random(c.gradient, {c.size}, 1)),
        master(Twin::random(DType::Float32, {c.size}, 2, c.elements_before)),
        first(Twin::random(DType::Float32, {c.size}, 3)),
        copy(Twin::random(c.copy, {c.size}, 5, c.elements_before)) {
    HostTensor squares = HostTensor::random(DType::Float32, {c.size}, 4);
    for (int64_t e = 0; e < c.size; ++e) squares.set(e, std::abs(squares.at(e)));
    second = Twin(squares);
    if (c.factor >= 0) verdict = Twin::of<double>({1.0, c.factor, c.apply ? 1.0 : 0.0}, {3});
  }
  void expect_same_bits(const std::string& what) const {
    for (const Twin* twin : {&master, &first, &second, &copy}) twin->expect_same_bits(what);
  }
};

template <typename Args, typename Make>
void expect_the_cpus_step(const std::string& name, const Make& make) {
  for (const Case& c : cases()) {
    Tensors t(c);
    run_twins<Args>([&](const auto& view) { return make(t, view); });
    t.expect_same_bits(name + " " + text(c.gradient) + " " + std::to_string(c.size));
  }
}

TEST(CudaOptimizer, AdamIsTheCpus) {
  for (const bool decoupled : {true, false})
    expect_the_cpus_step<Adam>("adam", [&](Tensors& t, const auto& view) {
      return Adam{.master = view(t.master),
                  .moment1 = view(t.first),
                  .moment2 = view(t.second),
                  .copy_out = view(t.copy),
                  .gradient = view(t.gradient),
                  .verdict = view(t.verdict),
                  .lr = number(view, t.lr),
                  .beta1 = number(view, t.beta1),
                  .beta2 = number(view, t.beta2),
                  .weight_decay = 0.1,
                  .gradient_scale = number(view, t.scale),
                  .correction1 = number(view, t.correction1),
                  .correction2 = number(view, t.correction2),
                  .decoupled_decay = decoupled};
    });
}

// There are runs of one type and mixed types, empty ranges, more ranges than one launch takes, and some whose verdict skips the
// step.
TEST(CudaOptimizer, AdamOfManyRangesIsTheCpuOfEach) {
  std::vector<std::unique_ptr<Tensors>> all;
  const DType types[] = {DType::BFloat16, DType::Float32, DType::Float16};
  for (int64_t i = 0; i < 90; ++i)
    all.push_back(std::make_unique<Tensors>(Case{.gradient = types[i < 70 ? 0 : i % 3],
                                                 .copy = DType::BFloat16,
                                                 .size = i % 5 == 0 ? 0 : i * 29 % 301,
                                                 .elements_before = i % 4 == 1 ? 1 : 0,
                                                 .factor = i % 7 == 3 ? 0.3 : -1,
                                                 .apply = i % 2 == 0}));
  all.push_back(std::make_unique<Tensors>(Case{DType::BFloat16, DType::Float16, 9000, 0, -1}));
  const auto updates = [&](const auto& view) {
    std::vector<Adam> list;
    for (size_t i = 0; i < all.size(); ++i)
      list.push_back({.master = view(all[i]->master),
                      .moment1 = view(all[i]->first),
                      .moment2 = view(all[i]->second),
                      .copy_out = view(all[i]->copy),
                      .gradient = view(all[i]->gradient),
                      .verdict = view(all[i]->verdict),
                      .weight_decay = i % 2 == 0 ? 0.1 : 0.0,
                      .correction1 = bias_correction(0.9, 3),
                      .correction2 = bias_correction(0.999, 3)});
    return list;
  };
  run_twins(
      0,
      [&](const auto& view) {
        for (const Adam& one : updates(view)) cpu::compute(AdamUpdates{std::span(&one, 1)}, 1);
      },
      [&](const auto& view, const cuda::Launch& launch) { cuda::compute(AdamUpdates{updates(view)}, launch); });
  for (size_t i = 0; i < all.size(); ++i) all[i]->expect_same_bits("range " + std::to_string(i));
}

#if __has_include("shim.h")

TEST(CudaOptimizer, AdamOfABlocksRangesIsOneLaunch) {
  Tensors t({DType::BFloat16, DType::BFloat16, 1029, 0, -1});
  std::vector<Adam> updates;
  for (int64_t i = 0; i < 12; ++i) {
    const auto part = [i](Twin& twin) { return twin.device().slice(50 * i, i == 7 ? 0 : 50); };
    updates.push_back({.master = part(t.master),
                       .moment1 = part(t.first),
                       .moment2 = part(t.second),
                       .copy_out = part(t.copy),
                       .gradient = part(t.gradient)});
  }
  const TestLaunch launch(0);
  const int64_t before = cuda_shim::counts().launches;
  cuda::compute(AdamUpdates{updates}, launch.launch());
  EXPECT_EQ(cuda_shim::counts().launches - before, 1);
}

#endif

TEST(CudaOptimizer, SgdIsTheCpus) {
  for (const double momentum : {0.0, 0.9})
    for (const int64_t step : {1, 2}) {
      Twin of_step = number_of(static_cast<double>(step));
      expect_the_cpus_step<Sgd>("sgd", [&](Tensors& t, const auto& view) {
        Sgd args{.master = view(t.master),
                 .copy_out = view(t.copy),
                 .gradient = view(t.gradient),
                 .verdict = view(t.verdict),
                 .lr = number(view, t.lr),
                 .momentum = momentum,
                 .dampening = 0.1,
                 .weight_decay = 0.1,
                 .gradient_scale = number(view, t.scale),
                 .step = number(view, of_step),
                 .nesterov = step == 2};
        if (momentum != 0) args.momentum_buffer = view(t.first);
        return args;
      });
    }
}

TEST(CudaOptimizer, LionIsTheCpus) {
  expect_the_cpus_step<Lion>("lion", [](Tensors& t, const auto& view) {
    return Lion{.master = view(t.master),
                .moment = view(t.first),
                .copy_out = view(t.copy),
                .gradient = view(t.gradient),
                .verdict = view(t.verdict),
                .lr = number(view, t.lr),
                .beta1 = number(view, t.beta1),
                .beta2 = number(view, t.beta2),
                .weight_decay = 0.1,
                .gradient_scale = number(view, t.scale)};
  });
}

TEST(CudaOptimizer, AdagradIsTheCpus) {
  expect_the_cpus_step<Adagrad>("adagrad", [](Tensors& t, const auto& view) {
    return Adagrad{.master = view(t.master),
                   .sum_of_squares = view(t.second),
                   .copy_out = view(t.copy),
                   .gradient = view(t.gradient),
                   .verdict = view(t.verdict),
                   .lr = number(view, t.lr),
                   .weight_decay = 0.1,
                   .gradient_scale = number(view, t.scale)};
  });
}

TEST(CudaOptimizer, LambIsTheCpus) {
  for (const Case& c : cases()) {
    Tensors t(c);
    Twin update = Twin::random(DType::Float32, {c.size}, 9);
    const auto make = [&](const auto& view) {
      return LambUpdate{.master = view(t.master),
                        .moment1 = view(t.first),
                        .moment2 = view(t.second),
                        .update = view(update),
                        .gradient = view(t.gradient),
                        .verdict = view(t.verdict),
                        .beta1 = number(view, t.beta1),
                        .beta2 = number(view, t.beta2),
                        .weight_decay = 0.1,
                        .gradient_scale = number(view, t.scale),
                        .correction1 = number(view, t.correction1),
                        .correction2 = number(view, t.correction2)};
    };
    run_twins<LambUpdate>(make);
    t.expect_same_bits("lamb_update");
    update.expect_same_bits("lamb_update");
  }
}

TEST(CudaOptimizer, MomentumUpdateIsTheCpus) {
  for (const bool nesterov : {true, false})
    for (const Case& c : cases()) {
      Tensors t(c);
      const auto make = [&](const auto& view) {
        return MomentumUpdate{.momentum_buffer = view(t.first),
                              .out = view(t.second),
                              .gradient = view(t.gradient),
                              .verdict = view(t.verdict),
                              .gradient_scale = number(view, t.scale),
                              .nesterov = nesterov};
      };
      run_twins<MomentumUpdate>(make);
      t.expect_same_bits("momentum_update");
    }
}

TEST(CudaOptimizer, RunningAverageIsTheCpus) {
  expect_the_cpus_step<RunningAverage>("running_average", [](Tensors& t, const auto& view) {
    return RunningAverage{.master = view(t.master),
                          .copy_out = view(t.copy),
                          .gradient = view(t.gradient),
                          .verdict = view(t.verdict),
                          .momentum = 0.3,
                          .share = 0.25,
                          .gradient_scale = number(view, t.scale)};
  });
}

TEST(CudaOptimizer, ApplyUpdateScalesByTheTrustRatio) {
  for (const double weights : {4.0, 0.0, 1e6}) {
    std::vector<int64_t> words;
    for (const double squares : {weights, 0.5}) {
      ExactSum sum;
      sum.add(squares);
      words.insert(words.end(), sum.words().begin(), sum.words().end());
    }
    Twin square_sums = Twin::of<int64_t>(words, {2, ExactSum::kWords});
    expect_the_cpus_step<ApplyUpdate>("apply_update", [&](Tensors& t, const auto& view) {
      return ApplyUpdate{.master = view(t.master),
                         .copy_out = view(t.copy),
                         .update = view(t.gradient),
                         .verdict = view(t.verdict),
                         .lr = number(view, t.lr),
                         .scale = 40,
                         .weight_decay = 3,
                         .square_sums = view(square_sums),
                         .min_ratio = 0.01,
                         .max_ratio = 10};
    });
  }
}

// The verdict goes from one kernel to the next, as in training: not even weight decay may move a weight.
TEST(CudaOptimizer, AStepWithoutTargetsChangesNothing) {
  for (const int64_t targets : {0, 12}) {
    Tensors t({DType::BFloat16, DType::BFloat16, 1029, 0, 0.5});
    const HostTensor before = t.master.read();
    std::vector<int64_t> words(ExactSum::kWords + 1, 0);
    words.back() = targets;
    Twin losses = Twin::of(words, {ExactSum::kWords + 1});
    words.pop_back();
    Twin square_sum = Twin::of(words, {ExactSum::kWords});
    const auto judge = [&](const auto& view) {
      return JudgeGradients{.square_sum = view(square_sum), .losses = view(losses), .verdict = view(t.verdict)};
    };
    const auto step = [&](const auto& view) {
      return Adam{.master = view(t.master),
                  .moment1 = view(t.first),
                  .moment2 = view(t.second),
                  .copy_out = view(t.copy),
                  .gradient = view(t.gradient),
                  .verdict = view(t.verdict),
                  .lr = number(view, t.lr),
                  .weight_decay = 0.1};
    };
    run_twins<JudgeGradients>(judge);
    run_twins<Adam>(step);
    t.expect_same_bits("adam");
    EXPECT_EQ(t.master.read() == before, targets == 0);
  }
}

TEST(CudaOptimizer, StepsHaveNoOrder) {
  in_every_order([] {
    Tensors t({DType::BFloat16, DType::BFloat16, 3000, 0, 0.5});
    const auto make = [&](const auto& view) {
      return Adam{.master = view(t.master),
                  .moment1 = view(t.first),
                  .moment2 = view(t.second),
                  .copy_out = view(t.copy),
                  .gradient = view(t.gradient),
                  .verdict = view(t.verdict)};
    };
    run_twins<Adam>(make);
    t.expect_same_bits("adam");
  });
}

}  // namespace
}  // namespace trivet::kernels::optimizer_test
