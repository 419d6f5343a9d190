// Predicts 16-bit runs that others have published: Megatron-LM on A100 (Narayanan et al. 2021; Korthikanti et al. 2022) and
// H100 (the table of its repository, core r0.8), torchtitan on H100 of 96 GB and 500 W. One number for each kind of GPU, the
// share of the matrix rate that its products reach, is fitted to a third of the rows, and the rest is predicted; this is
// repeated for each of the three thirds. The predictions also assume the public figures of cluster.cpp with its shares of links
// and memory, and what Run says. Where a publication does not give the microbatch size and the chunks of its pipeline, they
// take the best that fit, as its authors will have done. Two more tables, of NeMo AutoModel and of mixtures of experts, take
// the share of Megatron-LM on H100: nothing is fitted to them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>

#include "autotune/step_model.h"
#include "model/count_flops.h"
#include "tests/autotune/transformer_formulas.h"

namespace trivet::autotune {
namespace {

struct Run {
  std::string name;
  model::Description model;
  std::vector<Layout> candidates;  // the run used one of these
  StateTypes types;
  double published = 0;                                                 // in the unit of the table
  std::function<double(const Layout& layout, double seconds)> in_unit;  // converts the seconds of a step
  double recomputed_share = 1;                                          // of what Recompute::Full recomputes
  bool stores_scores = false;                                           // attention does, as in all runs before FlashAttention
};

// Additional seconds of attention that stores its scores, for a microbatch on a stage. Its products are of full squares instead
// of halves. It moves 13 bytes per score in the forward (product, softmax, dropout with its mask, product) and 19 in the
// backward, which has four products and not the five halves of a backward that recomputes the scores.
double seconds_of_scores(const Run& run, const Layout& layout, const Cluster& cluster) {
  const double scores = static_cast<double>(layout.microbatch * run.model.heads / layout.tensor * run.model.sequence_length *
                                            run.model.sequence_length);
  const double forwards = layout.recompute == Recompute::None ? 1 : 2;
  const double moved = (13 * forwards + 19) * scores / cluster.device.memory_bandwidth;
  const double head = static_cast<double>(run.model.hidden_size / run.model.heads);
  const double computed =
      (2 * forwards + 3) * scores * head / (cluster.device.matrix_flops * cluster.device.product_efficiency);
  return (moved + computed) * static_cast<double>(run.model.layers) / static_cast<double>(layout.pipeline);
}

struct Table {
  std::string name, unit;
  Cluster cluster;
  std::vector<Run> runs;
};

// How long the exchange of a microbatch's rows takes in these runs, in one stage. Each of t tensor ranks sends the rows of its
// own tokens, in one all-to-all whose messages between nodes take the links between nodes, and gets the other tensor ranks'
// rows over those of a node. Trivet's tensor ranks send all rows, in rounds that wait for the slowest.
double seconds_of_exchange(const Run& run, const Layout& layout, const Cluster& cluster) {
  const int64_t n = layout.expert, t = layout.tensor, near = std::min(n, std::max<int64_t>(1, cluster.devices_per_node / t));
  const model::Description& d = run.model;
  const double rows = static_cast<double>(layout.microbatch * d.sequence_length / layout.context * d.experts.per_token);
  const double bytes = rows * static_cast<double>(d.hidden_size) * 2;
  const LinkRates& link = n > near ? cluster.outside : cluster.inside;
  const double apart = static_cast<double>(n > near ? n - near : n - 1) / static_cast<double>(n);
  const double once = bytes / static_cast<double>(t) * apart * link.beta + ring_all_gather(t, bytes, cluster.inside);
  const double passes = layout.recompute == Recompute::Full ? 6 : 4;  // x, y and their gradients, and x and y again
  return passes * once * static_cast<double>(d.layers) / static_cast<double>(layout.pipeline);
}

// Additional seconds of a microbatch on a stage: their own exchange in place of Trivet's, which sends x twice, and nothing for
// what Trivet's experts compute again because they keep nothing.
double seconds_of_sharing(const Run& run, const Layout& layout, const StepSeconds& seconds, const Cluster& cluster) {
  if (layout.expert == 1) return 0;
  const double again = layout.recompute == Recompute::Full ? 0 : seconds.recompute;
  return seconds_of_exchange(run, layout, cluster) - (seconds.expert + again) / static_cast<double>(layout.microbatches);
}

struct Predicted {
  Layout layout;
  StepPrediction step;
  double seconds = 0;  // including the corrections of Run
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
    seconds += slots * seconds_of_sharing(run, layout, step.seconds, cluster);
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

// The share is fitted to every third row, starting at `third`, or to all rows if `third` is kAll.
constexpr size_t kAll = 3;
bool fitted_to(size_t row, size_t third) { return third == kAll || row % 3 == third; }

// Returns the share with the least sum of errors. The results are cached, because each takes a thousand predictions.
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

Layout sized_layout(Layout grid, int64_t batch, int64_t microbatch, int64_t chunks) {
  grid.microbatch = microbatch;
  grid.microbatches = batch / (grid.data * microbatch);
  grid.chunks = chunks;
  if (chunks > 1) grid.schedule = ScheduleKind::Interleaved;
  return grid;
}

// All ways to run `batch` sequences on a grid when the microbatch size and the chunks are not known.
std::vector<Layout> open_layouts(const Layout& grid, int64_t batch, int64_t layers) {
  std::vector<Layout> layouts;
  for (const int64_t microbatch : {1, 2, 4, 8, 16})
    for (int64_t chunks = 1; chunks <= 8; ++chunks) {
      if (batch % (grid.data * microbatch) != 0) continue;
      const Layout layout = sized_layout(grid, batch, microbatch, chunks);
      const bool divides = layers % (grid.pipeline * chunks) == 0 && layout.microbatches % grid.pipeline == 0;
      if (chunks == 1 || (grid.pipeline > 1 && divides)) layouts.push_back(layout);
    }
  return layouts;
}

struct GptRow {
  const char* name;
  int64_t hidden, layers, heads, tensor, pipeline, gpus, batch;
  double published;
  int64_t chunks = 0, microbatch = 0;  // 0: not published
};

// What the rows of one publication have in common.
struct GptSeries {
  int64_t sequence_length = 0, vocabulary = 0;
  double dropout = 0;
  bool tied_embedding = true, stores_scores = false;
  Layout layout;  // without its sizes; sequence parallelism only for several tensor ranks
  StateTypes types;
  RecomputedPart counted = RecomputedPart::Nothing;  // as part of the FLOPs
  double unit = 1;                                   // of `published`, in TFLOP/s per GPU
  std::vector<GptRow> rows;
};

Run run_of(const GptSeries& series, const GptRow& row) {
  Layout grid = series.layout;
  grid.data = row.gpus / (row.tensor * row.pipeline), grid.tensor = row.tensor, grid.pipeline = row.pipeline;
  grid.sequence_parallel = grid.sequence_parallel && row.tensor > 1;
  const TransformerShape shape{row.layers, row.hidden, row.heads, series.vocabulary, series.sequence_length};
  const double flops = gpt_step_flops(shape, row.batch, series.counted);
  return {.name = row.name,
          .model = {.layers = row.layers,
                    .hidden_size = row.hidden,
                    .heads = row.heads,
                    .sequence_length = series.sequence_length,
                    .vocabulary_size = series.vocabulary,
                    .dropout = series.dropout,
                    .tied_embedding = series.tied_embedding},
          .candidates = row.microbatch > 0 ? std::vector{sized_layout(grid, row.batch, row.microbatch, row.chunks)}
                                           : open_layouts(grid, row.batch, row.layers),
          .types = series.types,
          .published = row.published * series.unit,
          .in_unit = [flops](const Layout& layout,
                             double seconds) { return flops / (seconds * static_cast<double>(layout.devices())) / 1e12; },
          .stores_scores = series.stores_scores};
}

Table table_of(const std::string& name, const std::string& cluster, const std::vector<GptSeries>& publications) {
  Table table{name, "TFLOP/s", cluster_named(cluster), {}};
  for (const GptSeries& series : publications)
    for (const GptRow& row : series.rows) table.runs.push_back(run_of(series, row));
  return table;
}

Table megatron_a100() {
  // Hardware TFLOP/s per GPU, which include recomputation. Everything is recomputed and nothing is overlapped.
  const GptSeries recomputed{
      .sequence_length = 2048,
      .vocabulary = 51200,
      .dropout = 0.1,
      .stores_scores = true,
      .layout = {.recompute = Recompute::Full, .recompute_outputs = true, .overlap = false, .overlap_tensor = false},
      .types = {.gradient_bytes = 4},
      .counted = RecomputedPart::Everything,
      .rows = {{"1.7B", 2304, 24, 24, 1, 1, 32, 512, 137},
               {"3.6B", 3072, 30, 32, 2, 1, 64, 512, 138},
               {"7.5B", 4096, 36, 32, 4, 1, 128, 512, 142},
               {"18B", 6144, 40, 48, 8, 1, 256, 1024, 135},
               {"39B", 8192, 48, 64, 8, 2, 512, 1536, 138},
               {"76B", 10240, 60, 80, 8, 4, 1024, 1792, 140},
               {"145B", 12288, 80, 96, 8, 8, 1536, 2304, 148},
               {"310B", 16384, 96, 128, 8, 16, 1920, 2160, 155},
               {"530B", 20480, 105, 128, 8, 35, 2520, 2520, 163},
               {"1T", 25600, 128, 160, 8, 64, 3072, 3072, 163}}};
  // These rows are in percent of the peak and count the model's FLOPs alone. They use sequence parallelism and recompute
  // attention.
  GptSeries selective = recomputed;
  selective.layout = {.recompute = Recompute::Selective, .sequence_parallel = true, .overlap = false};
  selective.counted = RecomputedPart::Nothing;
  selective.unit = 3.12;
  selective.rows = {{"22B selective", 6144, 48, 64, 8, 1, 8, 4, 41.5, 1, 4},
                    {"175B selective", 12288, 96, 96, 8, 8, 64, 64, 51.4, 3, 1},
                    {"530B selective", 20480, 105, 128, 8, 35, 280, 280, 56.0, 3, 1},
                    {"1T selective", 25600, 128, 160, 8, 64, 512, 512, 56.3, 1, 1},
                    {"530B selective, 2240", 20480, 105, 128, 8, 35, 2240, 2240, 54.2, 3, 1}};
  GptSeries full = selective;
  full.layout = {.recompute = Recompute::Full, .recompute_outputs = true, .overlap = false};
  full.rows = {{"530B full, 2240", 20480, 105, 128, 8, 35, 2240, 2240, 42.1, 3, 1}};

  return table_of("Megatron-LM, A100", "a100", {recomputed, selective, full});
}

// Model TFLOP/s per GPU. The runs use the distributed optimizer and all overlaps, and recompute only attention.
Table megatron_h100() {
  const GptSeries runs{.sequence_length = 4096,
                       .vocabulary = 131072,
                       .tied_embedding = false,
                       .layout = {.zero_stage = 1, .recompute = Recompute::Selective, .sequence_parallel = true},
                       .types = {.gradient_bytes = 4, .sent_gradient_bytes = 4},
                       .rows = {{"1.7B", 2048, 24, 16, 1, 1, 48, 192, 408.8},
                                {"7.1B", 4096, 30, 32, 2, 1, 96, 192, 465.9},
                                {"16B", 6144, 32, 48, 4, 1, 192, 192, 489.1},
                                {"32B", 7168, 48, 56, 8, 1, 384, 192, 459.6},
                                {"70B", 8192, 84, 64, 8, 2, 768, 384, 419.7},
                                {"119B", 10240, 92, 80, 8, 4, 1536, 768, 420.5},
                                {"177B", 12288, 96, 96, 8, 6, 2304, 1152, 432.8},
                                {"314B", 16384, 96, 128, 8, 8, 3072, 1536, 474.4},
                                {"462B", 18432, 112, 144, 8, 16, 6144, 3072, 459.9},
                                {"177B, 96 GPUs", 12288, 96, 96, 8, 6, 96, 1152, 0.47 * 989},
                                {"177B, 4608 GPUs", 12288, 96, 96, 8, 6, 4608, 1152, 0.42 * 989}}};
  return table_of("Megatron-LM, H100", "h100", {runs});
}

// Tokens per second per GPU in bfloat16. This H100 has 96 GB of HBM2e and 500 W, so it is not the GPU of the table above.
// torchtitan's selective checkpointing recomputes every second product of the forward.
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
                             .hidden_size = 4096,
                             .heads = 32,
                             .key_value_heads = 8,
                             .feed_forward_size = 14336,
                             .sequence_length = 8192,
                             .vocabulary_size = 128256,
                             .tied_embedding = false};
    if (row.large) llama.layers = 80, llama.hidden_size = 8192, llama.heads = 64, llama.feed_forward_size = 28672;
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

// NeMo AutoModel's summary of performance in bfloat16, with its recipes of 2025-10: FSDP2 with everything recomputed, gradients
// reduced in float32, experts divided over all ranks, and routers that are forced to balance. Its other mixtures of experts
// have layers that Trivet has not: DeepSeek-V3 (latent attention), gpt-oss (attention sinks, biases of experts), Nemotron
// (Mamba).
Table automodel_h100() {
  Table table{"NeMo AutoModel, H100", "tokens/s", cluster_named("h100"), {}};
  table.cluster.expert_imbalance = 1;
  const model::Description llama{.type = model::Type::Llama,
                                 .layers = 80,
                                 .hidden_size = 8192,
                                 .heads = 64,
                                 .key_value_heads = 8,
                                 .feed_forward_size = 28672,
                                 .sequence_length = 8192,
                                 .vocabulary_size = 128256,
                                 .tied_embedding = false};
  model::Description qwen{.type = model::Type::Llama,
                          .layers = 48,
                          .hidden_size = 2048,
                          .heads = 32,
                          .key_value_heads = 4,
                          .head_size = 128,
                          .sequence_length = 4096,
                          .vocabulary_size = 151936,
                          .tied_embedding = false};
  qwen.qk_norm = true;
  qwen.experts = {.count = 128, .per_token = 8, .feed_forward_size = 768};
  model::Description oss{.type = model::Type::Llama,
                         .layers = 24,
                         .hidden_size = 2880,
                         .heads = 64,
                         .key_value_heads = 8,
                         .head_size = 64,
                         .feed_forward_size = 2880,
                         .sequence_length = 4096,
                         .attention_window = 128,
                         .full_attention_every = 2,
                         .vocabulary_size = 201088,
                         .tied_embedding = false};
  oss.qkv_bias = oss.out_bias = oss.attention_sinks = true;
  oss.experts = {.count = 32, .per_token = 4, .bias = true, .swiglu = {.limit = 7, .alpha = 1.702, .offset = 1}};
  model::Description large_oss = oss;
  large_oss.layers = 36, large_oss.experts.count = 128;
  model::Description deepseek{.type = model::Type::Llama,
                              .layers = 61,
                              .hidden_size = 7168,
                              .heads = 128,
                              .head_size = 192,
                              .feed_forward_size = 18432,
                              .sequence_length = 4096,
                              .vocabulary_size = 129280,
                              .tied_embedding = false};
  deepseek.latent_attention = {.query_rank = 1536, .key_value_rank = 512, .rotary_size = 64, .value_size = 128};
  deepseek.experts = {.count = 256,
                      .per_token = 8,
                      .feed_forward_size = 2048,
                      .shared_feed_forward_size = 2048,
                      .dense_blocks = {0, 1, 2},
                      .rule = {.score = kernels::ExpertScore::Sigmoid, .scale = 2.5, .groups = 8, .groups_per_token = 4},
                      .correction_bias = true};
  const auto add = [&](const char* name, const model::Description& description, std::vector<Layout> layouts, double published) {
    for (Layout& layout : layouts) layout.zero_stage = 3, layout.recompute = Recompute::Full, layout.recompute_outputs = true;
    const double tokens = static_cast<double>(description.sequence_length);
    table.runs.push_back({.name = name,
                          .model = description,
                          .candidates = layouts,
                          .types = {.gradient_bytes = 4, .sent_gradient_bytes = 4},
                          .published = published,
                          .in_unit = [tokens](const Layout& of, double seconds) {
                            return static_cast<double>(of.global_batch()) * tokens /
                                   (seconds * static_cast<double>(of.devices()));
                          }});
  };
  add("Llama-3 70B, context 2, 64", llama,
      {{.data = 32, .context = 2, .microbatch = 1, .microbatches = 4, .context_kind = ContextKind::Gather}}, 866.77);
  add("Qwen3-30B-A3B, expert 8", qwen, {{.data = 8, .expert = 8, .microbatch = 4, .microbatches = 16}}, 12040);
  // How many ranks share experts is not stated, though the rows are exchanged.
  add("gpt-oss-20B", oss,
      {{.data = 8, .microbatch = 2, .microbatches = 16}, {.data = 8, .expert = 8, .microbatch = 2, .microbatches = 16}}, 13058);
  add("gpt-oss-120B, 64", large_oss,
      {{.data = 64, .expert = 8, .microbatch = 2, .microbatches = 4},
       {.data = 64, .expert = 64, .microbatch = 2, .microbatches = 4}},
      7626);
  add("DeepSeek-V3, 256", deepseek,
      {{.data = 64,
        .pipeline = 4,
        .chunks = 8,
        .expert = 64,
        .schedule = ScheduleKind::Interleaved,
        .microbatch = 1,
        .microbatches = 8}},
      1002);
  return table;
}

struct MixtureRow {
  const char* name;
  const model::Description* model;
  int64_t gpus, tensor, expert, pipeline;
  double published;
};

// Megatron-LM's rows in table 3 of Liu et al. 2025 (2504.14960), 256 sequences of 4096 tokens, in percent of 989.5 TFLOP/s that
// the model's FLOPs make, with all scores. Experts are given as many tokens on average and no more, so ranks are balanced.
// Left out: rows whose experts have fewer tensor ranks than attention ("folding"), which Trivet has not, and FSDP, whose
// microbatches, kept weights and prefetching are not published.
Table mixtures_h100() {
  Table table{"Megatron-LM, mixtures, H100", "MFU %", cluster_named("h100"), {}};
  table.cluster.expert_imbalance = 1;
  model::Description mixtral{.type = model::Type::Llama,
                             .layers = 56,
                             .hidden_size = 6144,
                             .heads = 48,
                             .key_value_heads = 8,
                             .sequence_length = 4096,
                             .vocabulary_size = 32768,
                             .tied_embedding = false};
  mixtral.experts = {.count = 8, .per_token = 2, .feed_forward_size = 16384};
  model::Description fine = mixtral, qwen = mixtral, llama = mixtral;
  fine.experts = {.count = 64, .per_token = 8, .feed_forward_size = 2048};
  qwen.layers = 28, qwen.hidden_size = 3584, qwen.heads = 28, qwen.key_value_heads = 4, qwen.vocabulary_size = 151936;
  qwen.experts = {.count = 64, .per_token = 8, .feed_forward_size = 2560, .shared_feed_forward_size = 20480};
  llama.layers = 80, llama.hidden_size = 8192, llama.heads = 64, llama.vocabulary_size = 128256;
  llama.experts = {.count = 8, .per_token = 2, .feed_forward_size = 28672};
  for (const MixtureRow& row : {MixtureRow{"Mixtral 8x22B", &mixtral, 128, 2, 4, 8, 46.3},
                                {"Mixtral 8x22B, no pipeline", &mixtral, 128, 4, 8, 1, 36.6},
                                {"Qwen2-57B-A14B", &qwen, 64, 2, 4, 4, 35.3},
                                {"Qwen2-57B-A14B, no pipeline", &qwen, 64, 4, 4, 1, 23.1},
                                {"8x22B G8T8", &fine, 128, 2, 8, 8, 17.1},
                                {"8x22B G8T8, no pipeline", &fine, 128, 8, 8, 1, 8.7},
                                {"Llama-3 8x70B", &llama, 256, 8, 4, 8, 38.8}}) {
    const model::Description& d = *row.model;
    const double tokens = static_cast<double>(d.sequence_length), width = static_cast<double>(d.layers * d.hidden_size);
    const double flops = model::flops_per_sample(model::build(d)) + 6 * width * tokens * tokens;  // the masked scores
    Layout grid{.data = row.gpus / (row.tensor * row.pipeline),
                .tensor = row.tensor,
                .pipeline = row.pipeline,
                .expert = row.expert,
                .zero_stage = 1,
                .recompute_outputs = true};
    std::vector<Layout> layouts;
    for (const Recompute recompute : {Recompute::None, Recompute::Full}) {
      grid.recompute = recompute;
      std::ranges::copy(open_layouts(grid, 256, d.layers), std::back_inserter(layouts));
    }
    table.runs.push_back({.name = row.name,
                          .model = d,
                          .candidates = layouts,
                          .types = {.gradient_bytes = 4, .sent_gradient_bytes = 4},
                          .published = row.published,
                          .in_unit = [flops](const Layout& of, double seconds) {
                            return 100 * flops * static_cast<double>(of.global_batch()) /
                                   (seconds * static_cast<double>(of.devices()) * 989.5e12);
                          }});
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

void print(const Table& table, double share, const std::function<bool(size_t row)>& fitted) {
  Cluster cluster = table.cluster;
  cluster.device.product_efficiency = share;
  fmt::print("\n{}: {:.2f} of {:.0f} TFLOP/s, fitted to the rows with a star\n", table.name, share,
             cluster.device.matrix_flops / 1e12);
  fmt::print("{:28} {:>10} {:>10} {:>7}   {:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}\n", table.unit, "published",
             "predicted", "ratio", "compute", "recomp", "tensor", "expert", "bubble", "data", "update", "other", "GiB");
  for (size_t row = 0; row < table.runs.size(); ++row) {
    const Run& run = table.runs[row];
    const Predicted now = predict(run, cluster);
    const StepSeconds& s = now.step.seconds;
    const auto percent = [&](double part) { return fmt::format("{:.0f} %", 100 * part / now.seconds); };
    fmt::print("{:28} {:10.1f} {:10.1f} {:6.3f}{}   {:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:6.1f}\n", run.name,
               run.published, now.value, now.value / run.published, fitted(row) ? "*" : " ", percent(s.compute),
               percent(s.recompute * run.recomputed_share), percent(s.tensor), percent(s.expert), percent(s.bubble),
               percent(s.data), percent(s.optimizer),
               percent(now.seconds - s.total() + (1 - run.recomputed_share) * s.recompute), now.step.bytes.total() / (1 << 30));
  }
}

std::vector<double> errors_of(const Table& table, double share) {
  Cluster cluster = table.cluster;
  cluster.device.product_efficiency = share;
  std::vector<double> errors;
  for (const Run& run : table.runs) errors.push_back(std::abs(predict(run, cluster).value / run.published - 1));
  return errors;
}

// Whichever third is fitted to, the median error of all other rows is at most 10 %. To the tables that follow nothing is
// fitted: they take the share of Megatron-LM's dense models on H100.
TEST(PublishedRuns, ArePredictedFromPublicFigures) {
  const std::vector<Table> tables{megatron_a100(), megatron_h100(), torchtitan()}, others{automodel_h100(), mixtures_h100()};
  for (const Table& table : tables) print(table, fit(table, 1), [](size_t row) { return fitted_to(row, 1); });
  for (const Table& table : others) print(table, fit(tables[1], 1), [](size_t) { return false; });
  fmt::print("\n");
  for (size_t third = 0; third < 3; ++third) {
    std::vector<double> errors, mixtures;
    for (const Table& table : tables) std::ranges::copy(errors_of_others(table, third), std::back_inserter(errors));
    for (const Table& table : others) std::ranges::copy(errors_of(table, fit(tables[1], third)), std::back_inserter(mixtures));
    fmt::print("fitted to rows {}, {}, ...: median error of the {} other rows {:.1f} %, the largest {:.1f} %", third + 1,
               third + 4, errors.size(), 100 * median(errors), 100 * *std::ranges::max_element(errors));
    EXPECT_LE(median(errors), 0.10);
    std::ranges::copy(mixtures, std::back_inserter(errors));
    fmt::print("; with the last {} tables {} rows, {:.1f} and {:.1f} %\n", others.size(), errors.size(), 100 * median(errors),
               100 * *std::ranges::max_element(errors));
    EXPECT_LE(median(errors), 0.10);
  }
}

// The clusters that come with Trivet have the efficiency that is fitted to all rows.
TEST(PublishedRuns, GiveTheEfficiencyOfTheClustersThatComeWithTrivet) {
  EXPECT_NEAR(fit(megatron_a100(), kAll), cluster_named("a100").device.product_efficiency, 0.005);
  EXPECT_NEAR(fit(megatron_h100(), kAll), cluster_named("h100").device.product_efficiency, 0.005);
  EXPECT_EQ(cluster_named("h200").device.product_efficiency, cluster_named("h100").device.product_efficiency);
}

}  // namespace
}  // namespace trivet::autotune
