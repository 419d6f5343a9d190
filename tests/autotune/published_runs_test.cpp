// Runs in 16 bits that others have published, predicted: Megatron-LM on A100 (Narayanan et al. 2021; Korthikanti et al. 2022)
// and H100 (the table of its repository, core r0.8), torchtitan on H100 of 96 GB and 500 W. One number of each GPU, the share
// of the matrix rate that its products reach, is fitted to a third of the rows, and the rest is predicted; that for each of
// three thirds. Assumed besides: the public figures of cluster.cpp with its shares of links and memory; where a publication
// does not say the microbatch and the chunks of its pipeline, the best that fit, as its authors will have taken; what Run says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "autotune/step_model.h"
#include "autotune/transformer_formulas.h"

namespace trivet::autotune {
namespace {

struct Run {
  std::string name;
  model::Description model;
  std::vector<Layout> candidates;  // one of which it was
  StateTypes types;
  double published = 0;                                                 // in the unit of the table
  std::function<double(const Layout& layout, double seconds)> in_unit;  // of a step
  double recomputed_share = 1;                                          // of what Recompute::Full makes again
  bool stores_scores = false;                                           // of attention, as all did before FlashAttention
};

// What attention takes longer where it stores its scores, of a microbatch on a stage: products of whole squares in place of
// halves, and 13 bytes moved a score in the forward (product, softmax, dropout with its mask, product), 19 in the backward,
// which has four products and not the five halves of one that makes the scores again.
double seconds_of_scores(const Run& run, const Layout& layout, const Cluster& cluster) {
  const double scores = static_cast<double>(layout.microbatch * run.model.heads / layout.tensor * run.model.sequence_length *
                                            run.model.sequence_length);
  const double forwards = layout.recompute == Recompute::None ? 1 : 2;
  const double moved = (13 * forwards + 19) * scores / cluster.device.memory_bandwidth;
  const double head = static_cast<double>(run.model.hidden / run.model.heads);
  const double computed =
      (2 * forwards + 3) * scores * head / (cluster.device.matrix_flops * cluster.device.product_efficiency);
  return (moved + computed) * static_cast<double>(run.model.layers) / static_cast<double>(layout.pipeline);
}

struct Table {
  std::string name, unit;
  Cluster cluster;
  std::vector<Run> runs;
};

struct Predicted {
  Layout layout;
  StepPrediction step;
  double seconds = 0;  // with what Run says besides
  double value = 0;    // in the unit of the table
};

Predicted predict(const Run& run, const Cluster& cluster) {
  const model::Model model = model::build(run.model);
  const StepModel steps(model, cluster, run.types);
  std::optional<Predicted> best;
  for (const Layout& layout : run.candidates) {
    StepPrediction step = steps.predict(layout);
    double seconds = step.seconds.total() - (1 - run.recomputed_share) * step.seconds.recompute;
    const double slots = static_cast<double>(layout.microbatches) +
                         static_cast<double>(layout.pipeline - 1) / static_cast<double>(layout.chunks);
    if (run.stores_scores) seconds += slots * seconds_of_scores(run, layout, cluster);
    const bool fits = step.bytes.total() <= static_cast<double>(cluster.device.memory_bytes) || run.candidates.size() == 1;
    const double value = run.in_unit(layout, seconds);
    if (fits && (!best || value > best->value)) best = Predicted{layout, step, seconds, value};
  }
  if (!best) throw std::logic_error(run.name + ": no candidate fits");
  return *best;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Rows of which a share is fitted to: every third, from one on; kAll: all.
constexpr size_t kAll = 3;
bool fitted_to(size_t row, size_t third) { return third == kAll || row % 3 == third; }

// The least sum of errors. Remembered: each takes a thousand predictions.
double fit(const Table& table, size_t third) {
  static std::map<std::pair<std::string, size_t>, double> fitted;
  const auto [found, added] = fitted.try_emplace({table.name, third}, 0.0);
  Cluster cluster = table.cluster;
  double least = 1e9;
  for (int percent = 40; added && percent <= 80; ++percent) {
    cluster.device.product_efficiency = percent / 100.0;
    double sum = 0;
    for (size_t row = 0; row < table.runs.size(); ++row)
      if (fitted_to(row, third)) sum += std::abs(std::log(predict(table.runs[row], cluster).value / table.runs[row].published));
    if (sum < least) least = sum, found->second = percent / 100.0;
  }
  return found->second;
}

// All ways to run `batch` sequences on a grid whose microbatch and chunks are not known.
std::vector<Layout> open_layouts(Layout grid, int64_t batch, int64_t layers) {
  std::vector<Layout> layouts;
  for (const int64_t microbatch : {1, 2, 4, 8, 16})
    for (int64_t chunks = 1; chunks <= 8; ++chunks) {
      if (batch % (grid.data * microbatch) != 0) continue;
      Layout layout = grid;
      layout.microbatch = microbatch;
      layout.microbatches = batch / (grid.data * microbatch);
      layout.chunks = chunks;
      if (chunks > 1) {
        if (grid.pipeline == 1 || layers % (grid.pipeline * chunks) != 0 || layout.microbatches % grid.pipeline != 0) continue;
        layout.schedule = ScheduleKind::Interleaved;
      }
      layouts.push_back(layout);
    }
  return layouts;
}

struct GptRow {
  const char* name;
  int64_t hidden, layers, heads, tensor, pipeline, gpus, batch;
  double published;
};

// Hardware TFLOP/s of a GPU, recomputed ones among them; everything recomputed, nothing overlapped.
Table megatron_a100() {
  Table table{"Megatron-LM, A100", "TFLOP/s", cluster_named("a100"), {}};
  for (const GptRow& row :
       {GptRow{"1.7B", 2304, 24, 24, 1, 1, 32, 512, 137}, GptRow{"3.6B", 3072, 30, 32, 2, 1, 64, 512, 138},
        GptRow{"7.5B", 4096, 36, 32, 4, 1, 128, 512, 142}, GptRow{"18B", 6144, 40, 48, 8, 1, 256, 1024, 135},
        GptRow{"39B", 8192, 48, 64, 8, 2, 512, 1536, 138}, GptRow{"76B", 10240, 60, 80, 8, 4, 1024, 1792, 140},
        GptRow{"145B", 12288, 80, 96, 8, 8, 1536, 2304, 148}, GptRow{"310B", 16384, 96, 128, 8, 16, 1920, 2160, 155},
        GptRow{"530B", 20480, 105, 128, 8, 35, 2520, 2520, 163}, GptRow{"1T", 25600, 128, 160, 8, 64, 3072, 3072, 163}}) {
    const Layout grid{.data = row.gpus / (row.tensor * row.pipeline),
                      .tensor = row.tensor,
                      .pipeline = row.pipeline,
                      .recompute = Recompute::Full,
                      .overlap = false,
                      .overlap_tensor = false};
    const TransformerShape shape{row.layers, row.hidden, row.heads, 51200, 2048};
    table.runs.push_back({.name = row.name,
                          .model = {.layers = row.layers,
                                    .hidden = row.hidden,
                                    .heads = row.heads,
                                    .sequence_length = 2048,
                                    .vocabulary_size = 51200,
                                    .dropout = 0.1},
                          .candidates = open_layouts(grid, row.batch, row.layers),
                          .types = {.gradient_bytes = 4},
                          .published = row.published,
                          .in_unit =
                              [=](const Layout& layout, double seconds) {
                                return gpt_step_flops(shape, row.batch, RecomputedPart::Everything) /
                                       (seconds * static_cast<double>(layout.devices())) / 1e12;
                              },
                          .stores_scores = true});
  }
  // Percent of the peak, of the model's FLOPs alone; sequence parallelism, attention recomputed (the last: everything).
  struct Selective {
    const char* name;
    int64_t hidden, layers, heads, pipeline, chunks, data, microbatch, batch;
    bool full;
    double published;
  };
  for (const Selective& row : {Selective{"22B selective", 6144, 48, 64, 1, 1, 1, 4, 4, false, 41.5},
                               Selective{"175B selective", 12288, 96, 96, 8, 3, 1, 1, 64, false, 51.4},
                               Selective{"530B selective", 20480, 105, 128, 35, 3, 1, 1, 280, false, 56.0},
                               Selective{"1T selective", 25600, 128, 160, 64, 1, 1, 1, 512, false, 56.3},
                               Selective{"530B selective, 2240", 20480, 105, 128, 35, 3, 8, 1, 2240, false, 54.2},
                               Selective{"530B full, 2240", 20480, 105, 128, 35, 3, 8, 1, 2240, true, 42.1}}) {
    const Layout grid{.data = row.data,
                      .tensor = 8,
                      .pipeline = row.pipeline,
                      .chunks = row.chunks,
                      .schedule = row.chunks > 1 ? ScheduleKind::Interleaved : ScheduleKind::OneForwardOneBackward,
                      .microbatch = row.microbatch,
                      .microbatches = row.batch / row.data / row.microbatch,
                      .recompute = row.full ? Recompute::Full : Recompute::Selective,
                      .sequence_parallel = !row.full,
                      .overlap = false};
    const TransformerShape shape{row.layers, row.hidden, row.heads, 51200, 2048};
    table.runs.push_back({.name = row.name,
                          .model = {.layers = row.layers,
                                    .hidden = row.hidden,
                                    .heads = row.heads,
                                    .sequence_length = 2048,
                                    .vocabulary_size = 51200,
                                    .dropout = 0.1},
                          .candidates = {grid},
                          .types = {.gradient_bytes = 4},
                          .published = row.published / 100 * 312,
                          .in_unit =
                              [=](const Layout& layout, double seconds) {
                                return gpt_step_flops(shape, row.batch) / (seconds * static_cast<double>(layout.devices())) /
                                       1e12;
                              },
                          .stores_scores = true});
  }
  return table;
}

// Model TFLOP/s of a GPU; distributed optimizer, all overlaps on, no recomputation but attention's.
Table megatron_h100() {
  Table table{"Megatron-LM, H100", "TFLOP/s", cluster_named("h100"), {}};
  for (const GptRow& row :
       {GptRow{"1.7B", 2048, 24, 16, 1, 1, 48, 192, 408.8}, GptRow{"7.1B", 4096, 30, 32, 2, 1, 96, 192, 465.9},
        GptRow{"16B", 6144, 32, 48, 4, 1, 192, 192, 489.1}, GptRow{"32B", 7168, 48, 56, 8, 1, 384, 192, 459.6},
        GptRow{"70B", 8192, 84, 64, 8, 2, 768, 384, 419.7}, GptRow{"119B", 10240, 92, 80, 8, 4, 1536, 768, 420.5},
        GptRow{"177B", 12288, 96, 96, 8, 6, 2304, 1152, 432.8}, GptRow{"314B", 16384, 96, 128, 8, 8, 3072, 1536, 474.4},
        GptRow{"462B", 18432, 112, 144, 8, 16, 6144, 3072, 459.9},
        GptRow{"177B, 96 GPUs", 12288, 96, 96, 8, 6, 96, 1152, 0.47 * 989},
        GptRow{"177B, 4608 GPUs", 12288, 96, 96, 8, 6, 4608, 1152, 0.42 * 989}}) {
    const Layout grid{.data = row.gpus / (row.tensor * row.pipeline),
                      .tensor = row.tensor,
                      .pipeline = row.pipeline,
                      .zero_stage = 1,
                      .recompute = Recompute::Selective,
                      .sequence_parallel = row.tensor > 1};
    const TransformerShape shape{row.layers, row.hidden, row.heads, 131072, 4096};
    table.runs.push_back({.name = row.name,
                          .model = {.layers = row.layers,
                                    .hidden = row.hidden,
                                    .heads = row.heads,
                                    .sequence_length = 4096,
                                    .vocabulary_size = 131072,
                                    .tied_embedding = false},
                          .candidates = open_layouts(grid, row.batch, row.layers),
                          .types = {.gradient_bytes = 4, .sent_gradient_bytes = 4},
                          .published = row.published,
                          .in_unit = [=](const Layout& layout, double seconds) {
                            return gpt_step_flops(shape, row.batch) / (seconds * static_cast<double>(layout.devices())) / 1e12;
                          }});
  }
  return table;
}

// Tokens a second of a GPU, bfloat16. Of 96 GB of HBM2e and 500 W: another GPU than the one above. Its selective checkpointing
// makes every second product of the forward again.
Table torchtitan() {
  Table table{"torchtitan, H100 96 GB 500 W", "tokens/s", cluster_named("h100"), {}};
  table.cluster.device.memory_bytes = 95'000'000'000;
  table.cluster.device.memory_bandwidth = 0.9 * 2400e9;
  struct Row {
    const char* name;
    bool large;
    int64_t tensor, gpus, microbatch;  // 0: not published
    bool asynchronous;
    double published;
  };
  for (const Row& row :
       {Row{"8B, 8 GPUs, eager", false, 1, 8, 2, true, 5762}, Row{"8B, 8 GPUs, compiled", false, 1, 8, 2, true, 6667},
        Row{"8B, 128 GPUs, eager", false, 1, 128, 2, true, 5605}, Row{"8B, 128 GPUs, compiled", false, 1, 128, 2, true, 6514},
        Row{"8B, tensor 8, 64 GPUs", false, 8, 64, 0, false, 4378},
        Row{"8B, tensor 8, asynchronous", false, 8, 64, 0, true, 4809},
        Row{"70B, tensor 8, 256 GPUs", true, 8, 256, 0, false, 597.3},
        Row{"70B, tensor 8, asynchronous", true, 8, 256, 0, true, 652.4}}) {
    model::Description llama{.type = model::Type::Llama,
                             .layers = 32,
                             .hidden = 4096,
                             .heads = 32,
                             .key_value_heads = 8,
                             .feed_forward = 14336,
                             .sequence_length = 8192,
                             .vocabulary_size = 128256,
                             .tied_embedding = false};
    if (row.large) llama.layers = 80, llama.hidden = 8192, llama.heads = 64, llama.feed_forward = 28672;
    std::vector<Layout> layouts;
    for (const int64_t microbatch : {1, 2, 4, 8, 16})
      if (row.microbatch == 0 || row.microbatch == microbatch)
        layouts.push_back({.data = row.gpus / row.tensor,
                           .tensor = row.tensor,
                           .zero_stage = 3,
                           .microbatch = microbatch,
                           .recompute = Recompute::Full,
                           .sequence_parallel = row.tensor > 1,
                           .overlap_tensor = row.asynchronous});
    table.runs.push_back({.name = row.name,
                          .model = llama,
                          .candidates = layouts,
                          .types = {.gradient_bytes = 4, .sent_gradient_bytes = 4},
                          .published = row.published,
                          .in_unit =
                              [](const Layout& layout, double seconds) {
                                return static_cast<double>(layout.global_batch()) * 8192 /
                                       (seconds * static_cast<double>(layout.devices()));
                              },
                          .recomputed_share = row.large ? 1.0 : 0.5});
  }
  return table;
}

std::vector<double> errors_of_others(const Table& table, size_t third) {
  Cluster cluster = table.cluster;
  cluster.device.product_efficiency = fit(table, third);
  std::vector<double> errors;
  for (size_t row = 0; row < table.runs.size(); ++row)
    if (!fitted_to(row, third))
      errors.push_back(std::abs(predict(table.runs[row], cluster).value / table.runs[row].published - 1));
  return errors;
}

void print(const Table& table, size_t third) {
  Cluster cluster = table.cluster;
  cluster.device.product_efficiency = fit(table, third);
  fmt::print("\n{}: {:.2f} of {:.0f} TFLOP/s, fitted to the rows with a star\n", table.name, cluster.device.product_efficiency,
             cluster.device.matrix_flops / 1e12);
  fmt::print("{:28} {:>10} {:>10} {:>7}   {:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}\n", table.unit, "published",
             "predicted", "ratio", "compute", "again", "tensor", "bubble", "data", "update", "other", "GiB");
  for (size_t row = 0; row < table.runs.size(); ++row) {
    const Run& run = table.runs[row];
    const Predicted now = predict(run, cluster);
    const StepSeconds& s = now.step.seconds;
    const auto percent = [&](double part) { return fmt::format("{:.0f} %", 100 * part / now.seconds); };
    fmt::print("{:28} {:10.1f} {:10.1f} {:6.3f}{}   {:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:6.1f}\n", run.name,
               run.published, now.value, now.value / run.published, fitted_to(row, third) ? "*" : " ", percent(s.compute),
               percent(s.recompute * run.recomputed_share), percent(s.tensor), percent(s.bubble), percent(s.data),
               percent(s.optimizer), percent(now.seconds - s.total() + (1 - run.recomputed_share) * s.recompute),
               now.step.bytes.total() / (1 << 30));
  }
  fmt::print("median error of the others: {:.1f} %\n", 100 * median(errors_of_others(table, third)));
}

// Whichever third is fitted to, the median error of all other rows is at most 10 %.
TEST(PublishedRuns, ArePredictedFromPublicFigures) {
  const std::vector<Table> tables{megatron_a100(), megatron_h100(), torchtitan()};
  for (const Table& table : tables) print(table, 1);
  for (size_t third = 0; third < 3; ++third) {
    std::vector<double> errors;
    for (const Table& table : tables)
      for (const double error : errors_of_others(table, third)) errors.push_back(error);
    fmt::print("{}fitted to rows {}, {}, ...: median error of the {} others {:.1f} %, the largest {:.1f} %\n",
               third == 0 ? "\n" : "", third + 1, third + 4, errors.size(), 100 * median(errors),
               100 * *std::ranges::max_element(errors));
    EXPECT_LE(median(errors), 0.10);
  }
}

// What the clusters that come with Trivet say is what all rows say.
TEST(PublishedRuns, GiveTheEfficiencyOfTheClustersThatComeWithTrivet) {
  EXPECT_NEAR(fit(megatron_a100(), kAll), cluster_named("a100").device.product_efficiency, 0.005);
  EXPECT_NEAR(fit(megatron_h100(), kAll), cluster_named("h100").device.product_efficiency, 0.005);
  EXPECT_EQ(cluster_named("h200").device.product_efficiency, cluster_named("h100").device.product_efficiency);
}

}  // namespace
}  // namespace trivet::autotune
