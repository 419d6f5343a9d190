// Every operation against its closed formula, ranks as threads.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "core/random.h"
#include "tests/hvd/hvd_ranks.h"

namespace trivet::hvd {
namespace {

using ::testing::HasSubstr;

// Small integers, whose sums and products over at most 5 ranks are exact in every type.
int small(int rank, int64_t i) { return (rank * 2 + int(i)) % 3 + 1; }

template <typename T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return T(float(value));
  else
    return static_cast<T>(value);
}
template <typename T>
double to_double(T value) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return float(value);
  else
    return double(value);
}

double expected_of(ReduceOp op, int ranks, int64_t i) {
  double sum = 0, product = 1, least = 9, most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double value = small(rank, i);
    sum += value;
    product *= value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  switch (op) {
    case ReduceOp::Sum: return sum;
    case ReduceOp::Average: return sum / ranks;
    case ReduceOp::Product: return product;
    case ReduceOp::Min: return least;
    default: return most;
  }
}

template <typename T>
void check_allreduce(Communicator& hvd, ReduceOp op, int64_t count) {
  std::vector<T> data(count);
  for (int64_t i = 0; i < count; ++i) data[i] = from_double<T>(small(hvd.rank(), i));
  const std::string name = std::string(name_of(kDTypeOf<T>)) + std::string(name_of(op)) + std::to_string(count);
  const std::vector<T> before = data;
  const Tensor result = hvd.allreduce(view(before), {.name = name, .op = op});
  EXPECT_EQ(result.dtype(), kDTypeOf<T>);
  EXPECT_EQ(result.shape(), Shape{count});
  hvd.allreduce_(view(data), {.name = name, .op = op});
  for (int64_t i = 0; i < count; ++i) {
    const T expected = from_double<T>(expected_of(op, hvd.size(), i));
    ASSERT_EQ(to_double(data[i]), to_double(expected)) << name << " element " << i << " of rank " << hvd.rank();
    ASSERT_EQ(to_double(result.as<T>()[i]), to_double(expected)) << name << " element " << i << ", not in place";
    ASSERT_EQ(to_double(before[i]), small(hvd.rank(), i));
  }
}

TEST(HvdAllreduce, EveryOpOfEveryTypeMatchesItsFormula) {
  Options options;
  options.cycle_time = {};  // there are a thousand rounds
  const auto body = [](Communicator& hvd) {
    for (int64_t count : {0, 1, 7, 1000}) {
      for (ReduceOp op : {Sum, Min, Max, Product, Average}) {
        check_allreduce<float>(hvd, op, count);
        check_allreduce<double>(hvd, op, count);
        check_allreduce<float16>(hvd, op, count);
        check_allreduce<bfloat16>(hvd, op, count);
      }
      for (ReduceOp op : {Sum, Min, Max, Product}) {
        check_allreduce<int32_t>(hvd, op, count);
        check_allreduce<int64_t>(hvd, op, count);
      }
    }
  };
  for (int ranks : {1, 2, 3, 5}) run_ranks(ranks, body, options);
}

TEST(HvdAllreduce, NegativeNumbersAndNanInMinima) {
  run_ranks(3, [](Communicator& hvd) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> data{-float(hvd.rank()), hvd.rank() == 1 ? nan : 1.f};
    hvd.allreduce_(view(data), {.name = "x", .op = Min});
    EXPECT_EQ(data[0], -2.f);
    EXPECT_TRUE(std::isnan(data[1]));
  });
}

TEST(HvdAllreduce, ScalesBeforeAndAfter) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<float16> data{static_cast<float16>(40000.f)};  // the sum of two does not fit into float16
    hvd.allreduce_(view(data), {.name = "x", .op = Sum, .prescale_factor = 0.5});
    EXPECT_EQ(float(data[0]), 40000.f);
    std::vector<float> after{3};
    hvd.allreduce_(view(after), {.name = "y", .op = Sum, .postscale_factor = 0.25});
    EXPECT_EQ(after[0], 1.5f);
    hvd.allreduce_(view(after), {.name = "z", .op = Average, .prescale_factor = 4, .postscale_factor = 3});
    EXPECT_EQ(after[0], 18.f);
  });
}

// Rounded once to the wire type before the sum, added in float32, and rounded once after it.
template <typename Wire>
void check_compressed(Communicator& hvd, Compression compression) {
  std::vector<float> data;
  for (int i = 0; i < 100; ++i) data.push_back(unit_float(philox(5, hvd.rank(), i)[0]) + 0.001f);
  hvd.allreduce_(view(data), {.name = "x", .op = Average, .compression = compression});
  for (int i = 0; i < 100; ++i) {
    float sum = 0;
    for (int rank = 0; rank < hvd.size(); ++rank) sum += float(static_cast<Wire>(unit_float(philox(5, rank, i)[0]) + 0.001f));
    ASSERT_EQ(data[i], float(double(float(static_cast<Wire>(sum))) / hvd.size())) << i;
  }
}

TEST(HvdAllreduce, CompressedTensorsTravelIn16Bits) {
  run_ranks(3, [](Communicator& hvd) {
    check_compressed<float16>(hvd, Compression::Fp16);
    check_compressed<bfloat16>(hvd, Compression::Bf16);
    std::vector<int32_t> integers{1 << 20};
    hvd.allreduce_(view(integers), {.name = "i", .op = Sum, .compression = Compression::Fp16});
    EXPECT_EQ(integers[0], 3 << 20);
  });
}

TEST(HvdAllreduce, RanksMaySubmitInAnyOrder) {
  constexpr int kTensors = 20;
  run_ranks(4, [](Communicator& hvd) {
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> data(kTensors);
      std::vector<Handle> handles(kTensors);
      for (int i = 0; i < kTensors; ++i) {
        const int t = (i * (hvd.rank() % 2 == 0 ? 1 : 19) + 5 * hvd.rank()) % kTensors;  // another order on each rank
        data[t].assign(t + 1, float(t + hvd.rank()));
        handles[t] = hvd.allreduce_async_(view(data[t]), {.name = "t" + std::to_string(t), .op = Sum});
      }
      hvd.synchronize(handles);
      for (int t = 0; t < kTensors; ++t) EXPECT_EQ(data[t], std::vector<float>(t + 1, float(4 * t + 6))) << t;
    }
  });
}

TEST(HvdAllreduce, SeveralThreadsOfARankMaySubmit) {
  run_ranks(3, [](Communicator& hvd) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&hvd, t] {
        for (int i = 0; i < 8; ++i) {
          std::vector<float> data{float(10 * t + i + hvd.rank())};
          hvd.allreduce_(view(data), {.name = "thread " + std::to_string(t) + " tensor " + std::to_string(i), .op = Sum});
          EXPECT_EQ(data[0], float(3 * (10 * t + i) + 3));
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

// More than the 64 mutexes that a thread may hold under ThreadSanitizer.
TEST(HvdAllreduce, AHundredTensorsAreFused) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<std::vector<float>> data(100, std::vector<float>{float(hvd.rank() + 1)});
    std::vector<TensorView> views;
    for (auto& tensor : data) views.push_back(view(tensor));
    hvd.grouped_allreduce_(views, {.name = "g", .op = Sum});
    for (const auto& tensor : data) EXPECT_EQ(tensor[0], 3);
  });
}

// Sums of numbers that round: their bits show the order.
std::vector<float> bits_of_sums(int64_t threshold, bool grouped) {
  std::vector<float> result;
  Options options;
  options.fusion_threshold_bytes = threshold;
  run_ranks(
      4,
      [&](Communicator& hvd) {
        std::vector<std::vector<float>> tensors(5);
        std::vector<TensorView> views;
        for (size_t t = 0; t < tensors.size(); ++t)
          for (int i = 0; i < 301; ++i) tensors[t].push_back(unit_float(philox(t, hvd.rank(), i)[0]));
        for (auto& tensor : tensors) views.push_back(view(tensor));
        if (grouped)
          hvd.grouped_allreduce_(views, {.name = "g"});
        else
          for (const TensorView& tensor : views) hvd.allreduce_(tensor);
        if (hvd.rank() == 2)
          for (const auto& tensor : tensors) result.insert(result.end(), tensor.begin(), tensor.end());
      },
      options);
  return result;
}

TEST(HvdAllreduce, FusionAndGroupsDoNotChangeBits) {
  const auto expected = bits_of_sums(0, false);
  EXPECT_EQ(expected.size(), 5u * 301u);
  EXPECT_EQ(bits_of_sums(0, true), expected);
  EXPECT_EQ(bits_of_sums(2500, true), expected);
  EXPECT_EQ(bits_of_sums(1 << 20, true), expected);
}

TEST(HvdAllreduce, AGroupReturnsNewTensors) {
  run_ranks(2, [](Communicator& hvd) {
    const std::vector<float> a{1, 2};
    const std::vector<double> b{float(hvd.rank())};
    const auto sums = hvd.grouped_allreduce({view(a), view(b)}, {.op = Sum});
    EXPECT_EQ(values<float>(sums[0]), (std::vector<float>{2, 4}));
    EXPECT_EQ(values<double>(sums[1]), (std::vector<double>{1}));
  });
}

TEST(HvdAllgather, NumbersOfRowsMayDiffer) {
  run_ranks(3, [](Communicator& hvd) {
    const int64_t rows = hvd.rank() == 1 ? 0 : hvd.rank() + 1;
    const std::vector<int32_t> own(rows * 2, hvd.rank());
    const ConstTensorView tensor = view(own);
    const Tensor all = hvd.allgather(tensor.reshaped({rows, 2}), {.name = "x"});
    EXPECT_EQ(all.shape(), (Shape{4, 2}));
    EXPECT_EQ(values<int32_t>(all), (std::vector<int32_t>{0, 0, 2, 2, 2, 2, 2, 2}));
  });
}

TEST(HvdBroadcast, EveryRankCanBeTheRoot) {
  run_ranks(3, [](Communicator& hvd) {
    for (int root = 0; root < 3; ++root) {
      std::vector<uint8_t> data{uint8_t(hvd.rank() + 1), 7};
      const Tensor copy = hvd.broadcast(view(data), root, {.name = "copy"});
      EXPECT_EQ(values<uint8_t>(copy), (std::vector<uint8_t>{uint8_t(root + 1), 7}));
      EXPECT_EQ(data[0], hvd.rank() + 1);
      hvd.broadcast_(view(data), root, {.name = "in place"});
      EXPECT_EQ(data[0], root + 1);
    }
  });
}

TEST(HvdAlltoall, RowsGoWhereSplitsSay) {
  run_ranks(3, [](Communicator& hvd) {
    // Rank r sends 2 r + p rows, each holding 10 r + p, to rank p.
    std::vector<float> rows;
    std::vector<int64_t> splits;
    for (int to = 0; to < 3; ++to) {
      splits.push_back(2 * hvd.rank() + to);
      rows.insert(rows.end(), 2 * (2 * hvd.rank() + to), float(10 * hvd.rank() + to));
    }
    const ConstTensorView tensor = view(std::as_const(rows));
    const Result result = hvd.alltoall(tensor.reshaped({int64_t(rows.size()) / 2, 2}), splits, {.name = "x"});
    std::vector<float> expected;
    std::vector<int64_t> received;
    for (int from = 0; from < 3; ++from) {
      received.push_back(2 * from + hvd.rank());
      expected.insert(expected.end(), 2 * (2 * from + hvd.rank()), float(10 * from + hvd.rank()));
    }
    EXPECT_EQ(result.received_splits, received);
    EXPECT_EQ(values<float>(result.tensor), expected);
    EXPECT_EQ(result.tensor.shape(), (Shape{int64_t(expected.size()) / 2, 2}));

    const std::vector<int64_t> even{hvd.rank() * 3, hvd.rank() * 3 + 1, hvd.rank() * 3 + 2};
    EXPECT_EQ(values<int64_t>(hvd.alltoall(view(even)).tensor),
              (std::vector<int64_t>{hvd.rank(), 3 + hvd.rank(), 6 + hvd.rank()}));
  });
}

// The sum of these splits is the number of rows, in 64 bits.
TEST(HvdAlltoall, SplitsWhoseSumOverflowsAreRefused) {
  run_ranks(3, [](Communicator& hvd) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const std::vector<float> rows(3);
    EXPECT_THAT(error_of([&] {
                  hvd.alltoall(view(rows), {kMost, kMost, 5});
                }),
                HasSubstr("splits must be 3 numbers of at least 0"));
  });
}

TEST(HvdReducescatter, TheFirstRanksGetOneRowMore) {
  run_ranks(3, [](Communicator& hvd) {
    std::vector<float> data;
    for (int i = 0; i < 10; ++i) data.push_back(float(i + 100 * hvd.rank()));
    const ConstTensorView tensor = view(std::as_const(data));
    const Tensor own = hvd.reducescatter(tensor.reshaped({5, 2}), {.name = "x", .op = Sum});
    const int64_t first = hvd.rank() == 0 ? 0 : hvd.rank() == 1 ? 2 : 4, rows = hvd.rank() == 2 ? 1 : 2;
    EXPECT_EQ(own.shape(), (Shape{rows, 2}));
    for (int64_t i = 0; i < rows * 2; ++i) EXPECT_EQ(own.as<float>()[i], float(3 * (2 * first + i) + 300));
    const Tensor mean =
        hvd.reducescatter(tensor.reshaped({5, 2}), {.name = "y", .compression = Compression::Bf16, .prescale_factor = 2});
    EXPECT_EQ(mean.as<float>()[1], float(bfloat16(float(6 * (2 * first + 1) + 600))) / 3);
  });
}

TEST(HvdBarrier, ReturnsWhenAllRanksHaveCalledIt) {
  std::atomic<int> entered = 0;
  run_ranks(4, [&](Communicator& hvd) {
    for (int step = 1; step <= 5; ++step) {
      ++entered;
      hvd.barrier();
      EXPECT_GE(entered, 4 * step);
      hvd.barrier();
    }
  });
}

TEST(HvdObjects, BytesTravelWhole) {
  run_ranks(3, [](Communicator& hvd) {
    const std::string own(hvd.rank() * 2, char('a' + hvd.rank()));
    EXPECT_EQ(hvd.broadcast_object(own, 2), "cccc");
    EXPECT_EQ(hvd.broadcast_object(own, 0, {.name = "empty"}), "");
    EXPECT_EQ(hvd.allgather_object(own), (std::vector<std::string>{"", "bb", "cccc"}));
  });
}

TEST(HvdParameters, AllBecomeThoseOfTheRoot) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<float> weight(6, float(hvd.rank()));
    std::vector<int64_t> steps{hvd.rank() + 10};
    hvd.broadcast_parameters({{"weight", view(weight, {2, 3})}, {"steps", view(steps)}}, 1);
    EXPECT_EQ(weight, std::vector<float>(6, 1.f));
    EXPECT_EQ(steps[0], 11);
  });
}

// Nothing is sent if one of the names cannot be used.
TEST(HvdParameters, AreSentAllOrNone) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<float> a{float(hvd.rank())}, b{float(hvd.rank())}, other{1};
    const std::vector<NamedTensor> parameters{{"a", view(a)}, {"b", view(b)}};
    if (hvd.rank() == 0) {
      Handle handle = hvd.allreduce_async_(view(other), {.name = "b"});
      EXPECT_THAT(error_of([&] { hvd.broadcast_parameters(parameters, 1); }),
                  HasSubstr("broadcast of \"b\": a tensor of that name"));
      hvd.barrier();
      hvd.synchronize(handle);
    } else {
      hvd.barrier();
      hvd.allreduce_(view(other), {.name = "b"});
    }
    hvd.broadcast_parameters(parameters, 1);
    EXPECT_EQ(a[0], 1);
    EXPECT_EQ(b[0], 1);
  });
}

TEST(HvdErrors, RanksThatDisagreeAllLearnWhatDiffersAndGoOn) {
  run_ranks(3, [](Communicator& hvd) {
    std::vector<float> two(2, 1), three(3, 1), good(1, 1);
    Handle wrong = hvd.allreduce_async_(view(hvd.rank() == 1 ? three : two), {.name = "wrong", .op = Sum});
    Handle right = hvd.allreduce_async_(view(good), {.name = "right", .op = Sum});
    EXPECT_EQ(
        error_of([&] { hvd.synchronize(wrong); }),
        "RanksDisagree: hvd: allreduce of \"wrong\": shape is [2] on ranks 0, 2 and [3] on rank 1; all ranks must submit the "
        "same under one name");
    hvd.synchronize(right);
    EXPECT_EQ(good[0], 3);
    hvd.allreduce_(view(two), {.name = "wrong", .op = Sum});
    EXPECT_EQ(two[0], 3);
  });
}

TEST(HvdErrors, MistakesOfOneRankAreSaidBeforeAnythingIsSent) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<int64_t> integers(2);
    std::vector<uint8_t> bytes(2);
    std::vector<float> floats(3), scalar(1);
    const auto of = [&](const std::function<void()>& call) { return error_of(call); };
    EXPECT_EQ(
        of([&] { hvd.allreduce_(view(integers), {.name = "i"}); }),
        "Usage: hvd: allreduce of \"i\": int64 with op \"average\", prescale_factor 1 and postscale_factor 1 is not defined; "
        "use op \"sum\" without scales, or a floating-point tensor");
    EXPECT_THAT(of([&] { hvd.allreduce_(view(integers), {.name = "i", .op = Sum, .postscale_factor = 2}); }),
                HasSubstr("postscale_factor 2 is not defined"));
    EXPECT_THAT(of([&] { hvd.allreduce_(view(integers), {.name = "i", .op = Adasum}); }), HasSubstr("op \"adasum\""));
    EXPECT_EQ(of([&] { hvd.allreduce_(view(bytes), {.name = "b", .op = Sum}); }),
              "Usage: hvd: allreduce of \"b\": uint8 is not accepted; use float32, float64, float16, bfloat16, int32 or int64");
    EXPECT_THAT(of([&] { hvd.alltoall(view(floats), {}, {.name = "a"}); }),
                HasSubstr("3 rows cannot be divided by 2 ranks; say how many go to each in `splits`"));
    for (const auto& splits : std::vector<std::vector<int64_t>>{{3}, {1, 1}, {4, -1}})
      EXPECT_THAT(of([&] { hvd.alltoall(view(floats), splits, {.name = "a"}); }),
                  HasSubstr("splits must be 2 numbers of at least 0 whose sum is the number of rows, 3"));
    EXPECT_THAT(of([&] { hvd.reducescatter(view(floats), {.name = "r", .op = Max}); }),
                HasSubstr("op \"max\" is not accepted; use \"average\" or \"sum\""));
    EXPECT_THAT(of([&] { hvd.broadcast_(view(floats), 2, {.name = "c"}); }),
                HasSubstr("root_rank 2 is not a rank of the process set"));
    EXPECT_THAT(of([&] { hvd.allgather(view(scalar, Shape{}), {.name = "g"}); }), HasSubstr("the tensor has no dims"));
    EXPECT_THAT(of([&] { hvd.allreduce_(view(floats), {.name = std::string(5000, 'n')}); }),
                HasSubstr("the name has 5000 bytes; use at most 4096"));
    for (const int root : {2, -1, 99}) {
      const std::string why =
          fmt::format("Usage: hvd: broadcast_parameters: root_rank {} is not a rank of the job; use 0 to 1", root);
      EXPECT_EQ(of([&] { hvd.broadcast_parameters({}, root); }), why);
      EXPECT_EQ(of([&] { hvd.broadcast_parameters({{"p", view(floats)}}, root); }), why);
    }
    for (const auto op : {static_cast<ReduceOp>(6), static_cast<ReduceOp>(77), static_cast<ReduceOp>(255)}) {
      const std::string why = fmt::format(
          "\"o\": op {} is not accepted; use \"average\", \"sum\", \"min\", \"max\", \"product\", \"adasum\"", int(op));
      EXPECT_THAT(of([&] { hvd.allreduce_(view(floats), {.name = "o", .op = op}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.allreduce(view(floats), {.name = "o", .op = op}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.reducescatter(view(floats), {.name = "o", .op = op}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.grouped_allreduce_({view(floats)}, {.name = "o", .op = op}); }),
                  HasSubstr(fmt::format("\"o.1of1\": op {} is not accepted", int(op))));
    }
    EXPECT_THAT(of([&] { hvd.allreduce_(view(floats), {.name = "k", .compression = static_cast<Compression>(3)}); }),
                HasSubstr("\"k\": compression 3 is not accepted; use \"none\", \"fp16\", \"bf16\""));
    const auto refused_everywhere = [&](ConstTensorView tensor, const char* why) {
      const TensorView writable{const_cast<void*>(tensor.data), tensor.dtype, tensor.shape};
      EXPECT_THAT(of([&] { hvd.allreduce(tensor, {.name = "t"}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.allreduce_(writable, {.name = "t"}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.grouped_allreduce({tensor}, {.name = "t"}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.allgather(tensor, {.name = "t"}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.broadcast(tensor, 0, {.name = "t"}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.broadcast_parameters({{"t", writable}}, 0); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.alltoall(tensor, {}, {.name = "t"}); }), HasSubstr(why));
      EXPECT_THAT(of([&] { hvd.reducescatter(tensor, {.name = "t"}); }), HasSubstr(why));
    };
    refused_everywhere({nullptr, DType::Float32, {2}}, "the tensor of the shape [2] has no data (a null pointer)");
    refused_everywhere({floats.data(), DType::Float32, {-2}}, "the tensor has the shape [-2]; each size must be at least 0");
    refused_everywhere({floats.data(), static_cast<DType>(99), {2}}, "dtype 99 is not accepted; use \"float32\", ");
    refused_everywhere({floats.data(), DType::Float32, {-2, -2}}, "the tensor has the shape [-2, -2]");
    refused_everywhere({floats.data(), DType::Float32, {int64_t{1} << 32, int64_t{1} << 32}}, "their product at most 2^48");
    Handle nothing;
    EXPECT_THAT(of([&] { hvd.synchronize(nothing); }), HasSubstr("stands for nothing"));
    EXPECT_THAT(of([&] { hvd.poll(nothing); }), HasSubstr("stands for nothing"));
    std::vector<float> one{1};  // nothing of all this was sent
    hvd.allreduce_(view(one), {.name = "s", .op = Sum});
    EXPECT_EQ(one[0], 2);
  });
}

TEST(HvdErrors, ANameIsInFlightOnce) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<float> a(1, 1), b(1, 1);
    if (hvd.rank() == 0) {
      Handle first = hvd.allreduce_async_(view(a), {.name = "x", .op = Sum});
      EXPECT_FALSE(hvd.poll(first));  // rank 1 submits it after the barrier
      EXPECT_THAT(error_of([&] { hvd.allreduce_(view(b), {.name = "x", .op = Sum}); }),
                  HasSubstr("allreduce of \"x\": a tensor of that name is in flight on this rank"));
      hvd.barrier();
      hvd.synchronize(first);
    } else {
      hvd.barrier();
      hvd.allreduce_(view(a), {.name = "x", .op = Sum});
    }
    hvd.allreduce_(view(a), {.name = "x", .op = Sum});
    EXPECT_EQ(a[0], 4);
  });
}

TEST(HvdErrors, TensorsWithoutNamesAreCounted) {
  run_ranks(2, [](Communicator& hvd) {
    std::vector<float> a(1, 1), b(1, 10);
    std::vector<Handle> handles;
    handles.push_back(hvd.allreduce_async_(view(a), {.op = Sum}));
    handles.push_back(hvd.allreduce_async_(view(b), {.op = Sum}));
    hvd.synchronize(handles);
    EXPECT_EQ(a[0], 2);
    EXPECT_EQ(b[0], 20);
    std::vector<float> different(hvd.rank() + 1);
    EXPECT_THAT(error_of([&] { hvd.allreduce_(view(different), {.op = Sum}); }), HasSubstr("\"allreduce.noname.3\""));
  });
}

}  // namespace
}  // namespace trivet::hvd
