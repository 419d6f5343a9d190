// curriculum_learning.*, data_efficiency.*; and progressive_layer_drop.*, quantize_training.*, eigenvalue.*, which are not
// implemented.
#include "engine/config/curriculum.h"
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

using Part = std::function<CurriculumConfig&(Config&)>;

KeyRefiner integers(SectionBase& section, const Part& part, const std::string& name,
                    std::vector<int64_t> CurriculumConfig::*member, const std::string& meaning) {
  return section.custom(
      name, KeyType::List, meaning,
      [=](Config& c, const JsonNode& node) {
        for (const JsonNode& item : node.items) {
          if (!item.is_integer || item.integer < 1) throw std::invalid_argument("use a list of integers from 1");
          (part(c).*member).push_back(item.integer);
        }
      },
      [=](const Config& c) { return integers_json(part(const_cast<Config&>(c)).*member); });
}

// The keys of a schedule.
struct ScheduleKeys {
  std::string section;
  std::string main;  // the section whose keys these are other names of, or the section itself
  Part part;
  std::string least, most, steps;  // descriptions of the difficulties, for people
};

void add_schedule(KeyTable& table, const ScheduleKeys& keys) {
  using C = CurriculumConfig;
  const Part part = keys.part;
  const auto same_as = [&](KeyRefiner key, const std::string& name) {
    if (keys.section != keys.main) key.alias_of(keys.main + "." + name);
  };
  const auto active = [&](KeyRefiner key, const std::string& when, const std::function<bool(DifficultySchedule)>& condition) {
    return key.active_when(keys.main + ".schedule_type is " + when,
                           [=](const Config& c) { return condition(part(const_cast<Config&>(c)).schedule); });
  };
  const auto by_root = [](DifficultySchedule schedule) { return schedule != DifficultySchedule::FixedDiscrete; };
  const auto has_degree = [](DifficultySchedule schedule) { return schedule == DifficultySchedule::FixedRoot; };
  const auto by_list = [](DifficultySchedule schedule) { return schedule == DifficultySchedule::FixedDiscrete; };
  Section<C> section(table, keys.section, part);
  same_as(section.count("min_difficulty", &C::min_difficulty, keys.least), "min_difficulty");
  same_as(section.count("max_difficulty", &C::max_difficulty, keys.most), "max_difficulty");
  same_as(section
              .key("schedule_type", &C::schedule,
                   "how the difficulty rises from the minimum to the maximum: evenly, as a root, or by a list")
              .refuses({"custom"}),
          "schedule_type");
  Section<C> config(table, keys.section + ".schedule_config", part);
  const std::string both = "\"fixed_linear\" or \"fixed_root\"";
  same_as(active(config.count("total_curriculum_step", &C::total_steps, "the step that reaches the maximum"), both, by_root),
          "schedule_config.total_curriculum_step");
  same_as(active(config.count("difficulty_step", &C::difficulty_step, keys.steps), both, by_root),
          "schedule_config.difficulty_step");
  same_as(active(config.count("root_degree", &C::root_degree, "2: a square root"), "\"fixed_root\"", has_degree),
          "schedule_config.root_degree");
  same_as(active(integers(config, part, "difficulty", &C::difficulties, "the difficulties, ascending"), "\"fixed_discrete\"",
                 by_list),
          "schedule_config.difficulty");
  same_as(active(integers(config, part, "max_step", &C::last_steps, "the last step of each of them but the last"),
                 "\"fixed_discrete\"", by_list),
          "schedule_config.max_step");
}

CurriculumConfig& schedule_of_cuts(Config& config) { return config.curriculum; }

void add_curriculum(KeyTable& table) {
  using C = CurriculumConfig;
  const std::string main = "curriculum_learning";
  Section<C> section(table, main, [](Config& c) -> C& { return c.curriculum; });
  section.switched("curriculum learning");
  section.key("enabled", &C::enabled,
              "short sequences first: a step trains on the first tokens of its sequences, as many as its difficulty says");
  section
      .custom(
          "curriculum_type", KeyType::Enum, "what is difficult: long sequences", [](Config&, const JsonNode&) {},
          [](const Config&) { return "\"seqlen\""; })
      .names({"seqlen"});
  add_schedule(table, {.section = main,
                       .main = main,
                       .part = schedule_of_cuts,
                       .least = "tokens of the first sequences",
                       .most = "tokens of the longest sequences, at most model.sequence_length",
                       .steps = "difficulties are multiples of it; 8 suits tensor cores"});
}

void add_index_files(SectionBase& metric) {
  for (const char* name : {"index_to_sample_path", "index_to_metric_path"})
    metric.inert(name, "null", "index files of DeepSpeed's data analyzer",
                 "the metric is measured on the samples of this run, so that no files are needed");
}

// A metric that chooses samples.
void add_metric(KeyTable& table, const std::string& section, SampleMetric SampleCurriculum::*member, const std::string& what) {
  const auto part = [member](Config& c) -> SampleMetric& { return c.sample_curriculum.*member; };
  Section<SampleMetric> metric(table, section, part);
  add_index_files(metric);
  metric.key("difficulty_type", &SampleMetric::type,
             "what difficulties are: values of the metric, or shares of all samples, from the easiest on, in parts of "
             "max_difficulty");
  add_schedule(table, {.section = section,
                       .main = section,
                       .part = [part](Config& c) -> CurriculumConfig& { return part(c).schedule; },
                       .least = "the difficulty of the first step: " + what + ", or a percentile",
                       .most = "the difficulty of the last steps; as a percentile it means all samples",
                       .steps = "difficulties are multiples of it"});
}

void add_metrics(KeyTable& table, const std::string& metrics) {
  const std::string lengths = metrics + ".seqlen", cuts = metrics + ".seqlen_truncate", rarity = metrics + ".vocabularyrarity";
  const auto length_of = [](Config& c) -> SampleMetric& { return c.sample_curriculum.length; };
  const auto rarity_of = [](Config& c) -> SampleMetric& { return c.sample_curriculum.rarity; };
  add_metric(table, lengths, &SampleCurriculum::length, "tokens of a sample");
  Section<SampleMetric>(table, lengths, length_of)
      .key("clustering_type", &SampleMetric::clustering,
           "what the difficulty does: single_cluster cuts sequences to it, schedule_based chooses samples that are at most as "
           "long");
  SectionBase truncate(table, cuts);
  add_index_files(truncate);
  truncate.unsupported("difficulty_type", "\"value\"", "what difficulties are: lengths, or percentiles of them");
  truncate.unsupported("clustering_type", "\"single_cluster\"",
                       "whether the difficulty chooses samples instead of cutting them, as that of seqlen can");
  add_schedule(table, {.section = cuts,
                       .main = "curriculum_learning",
                       .part = schedule_of_cuts,
                       .least = "tokens of the first sequences",
                       .most = "tokens of the longest sequences, at most model.sequence_length",
                       .steps = "difficulties are multiples of it; 8 suits tensor cores"});
  add_metric(table, rarity, &SampleCurriculum::rarity,
             "minus the sum of the natural logarithms of the frequencies of a sample's tokens");
  Section<SampleMetric>(table, rarity, rarity_of)
      .key("clustering_type", &SampleMetric::clustering, "what the difficulty does: it chooses samples")
      .names({"schedule_based"});
  table.add_name(metrics + ".voc", rarity);
  SectionBase(table, metrics + ".seqlen_reshape").refused("a curriculum that cuts sequences into several", "");
  table.advise(
      metrics,
      "Trivet measures \"seqlen\", \"seqlen_truncate\" (which cuts samples) and \"vocabularyrarity\" itself, and reads no "
      "metric from index files; use one of these");
}

void add_sampling(KeyTable& table) {
  Section<DataEfficiencyConfig> sampling(table, "data_efficiency.data_sampling",
                                         [](Config& c) -> DataEfficiencyConfig& { return c.data_efficiency; });
  sampling.switched("data sampling");
  sampling.key("enabled", &DataEfficiencyConfig::sampling, "use the sections in this one");
  sampling.unused("num_epochs", "1000", "passes over the data").instead("training.epochs");
  sampling.unused("num_workers", "0", "loader processes");
  sampling.unused("pin_memory", "false", "page-lock batches");
  Section<SampleCurriculum> curriculum(table, "data_efficiency.data_sampling.curriculum_learning",
                                       [](Config& c) -> SampleCurriculum& { return c.sample_curriculum; });
  curriculum.switched("curriculum learning");
  curriculum
      .key("enabled", &SampleCurriculum::enabled,
           "easy samples first, by the metrics that follow, or short sequences first, as in curriculum_learning")
      .deepspeed("draws samples with weights from clusters of equal difficulty, which it keeps in files");
  curriculum.unused("data_cluster_path", "null", "folder for the order of the samples");
  add_metrics(table, "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics");
  SectionBase batching(table, "data_efficiency.data_sampling.dynamic_batching");
  batching.refused("batches formed by tokens");
  batching.unsupported("enabled", "false", "form batches by tokens instead of samples");
  batching.unsupported("max_tokens", "null", "tokens per batch");
  batching.unsupported("lr_scaling_method", "\"linear\"", "how the learning rate scales with the batch size");
  batching.unsupported("min_batch_size", "1", "smallest batch");
  batching.unsupported("max_batch_size", "null", "largest batch");
  batching.unsupported("sequence_picking_order", "\"dataloader\"", "order of the samples");
  batching.unsupported("metrics_path", "null", "index of the sequence lengths");
  batching.unsupported("verbose", "false", "print the batches");
}

void set_blocks(Config& config, const JsonNode& node) {
  config.model.token_drop.blocks.clear();
  for (const JsonNode& item : node.items) {
    if (!item.is_integer || item.integer < 0) throw std::invalid_argument("use a list of numbers of blocks, from 0");
    config.model.token_drop.blocks.push_back(item.integer);
  }
}

void add_schedule_of_tokens(KeyTable& table, const std::string& prefix) {
  using T = model::TokenDrop;
  const auto part = [](Config& c) -> T& { return c.model.token_drop; };
  Section<T> schedule(table, prefix, part), steps(table, prefix + ".schedule_config", part);
  schedule.count("min_value", &T::min_tokens, "tokens of a sequence that these blocks compute in the first step");
  schedule.count("max_value", &T::max_tokens, "tokens of a sequence in the end, at most model.sequence_length");
  schedule
      .custom(
          "schedule_type", KeyType::Enum, "how the number of tokens rises: evenly", [](Config&, const JsonNode&) {},
          [](const Config&) { return "\"fixed_linear\""; })
      .names({"fixed_linear"});
  steps.count("require_steps", &T::steps, "steps from the minimum to the maximum, before rounding");
  steps.count("seq_per_step", &T::multiple, "the number of tokens is rounded down to a multiple of this; 8 suits tensor cores");
}

void add_random_ltd(KeyTable& table) {
  using D = DataEfficiencyConfig;
  using T = model::TokenDrop;
  const auto switches = [](Config& c) -> D& { return c.data_efficiency; };
  Section<D> routing(table, "data_efficiency.data_routing", switches);
  routing.switched("data routing");
  routing.key("enabled", &D::routing, "use the sections in this one");
  const std::string name = "data_efficiency.data_routing.random_ltd";
  Section<T> ltd(table, name, [](Config& c) -> T& { return c.model.token_drop; });
  ltd.switched("random layerwise token dropping");
  ltd.key("enabled", &T::enabled, "some blocks of a transformer compute a random part of the tokens, more of them step by step")
      .deepspeed("gives the block the chosen tokens without their positions, so that a rotary embedding counts from 0");
  Section<D> numbers(table, name, switches);
  numbers.count("total_layer_num", &D::total_layers, "blocks of the model; must be model.layers");
  numbers.count("random_ltd_layer_num", &D::dropping_layers, "how many blocks random_ltd_layer_id lists");
  ltd.custom("random_ltd_layer_id", KeyType::List, "the blocks that leave tokens out, from 0", set_blocks,
             [](const Config& c) { return integers_json(c.model.token_drop.blocks); });
  ltd.inert("model_mask_name", "null", "the model's argument for the mask", "the engine knows its models");
  ltd.unsupported("model_type", "\"decoder\"", "whether tokens see only those before them");
  ltd.inert("hidden_state_order", "\"batch_seq_dim\"", "order of the dimensions", "the engine knows its models");
  add_schedule_of_tokens(table, name + ".random_ltd_schedule");
  SectionBase rate(table, name + ".layer_token_lr_schedule");
  rate.refused("a learning rate by the tokens of all layers");
  rate.unsupported("enabled", "false", "learning rate by tokens");
  for (const char* key : {"total_layer_tokens", "warmup_type", "warmup_layer_tokens"})
    rate.unsupported(key, "null", "setting of the learning rate by tokens");
}

}  // namespace

void add_data_efficiency_keys(KeyTable& table) {
  add_curriculum(table);
  Section<DataEfficiencyConfig> efficiency(table, "data_efficiency",
                                           [](Config& c) -> DataEfficiencyConfig& { return c.data_efficiency; });
  efficiency.switched("data efficiency");
  efficiency.key("enabled", &DataEfficiencyConfig::enabled, "use the sections in this one");
  efficiency.unused("seed", "1234", "seed of DeepSpeed's sampler").instead("training.seed");
  add_sampling(table);
  add_random_ltd(table);

  SectionBase layer_drop(table, "progressive_layer_drop");
  layer_drop.removed("progressive layer drop", "DeepSpeed 0.19.8 no longer has it",
                     "data_efficiency.data_routing.random_ltd to leave out tokens instead");
  layer_drop.unsupported("enabled", "false", "leave out blocks of a transformer, late ones and late in the run more often");
  layer_drop.unsupported("theta", "1.0", "share of the steps that keep the last block, in the end");
  layer_drop.unsupported("gamma", "0.001", "how fast the share falls from 1 to theta");
  SectionBase eigenvalue(table, "eigenvalue");
  eigenvalue.refused("eigenvalues of layers");
  eigenvalue.unsupported("enabled", "false", "compute eigenvalues of the layers");
  eigenvalue.unsupported("verbose", "false", "print the eigenvalues");
  eigenvalue.unsupported("max_iter", "100", "iterations");
  eigenvalue.unsupported("tol", "0.01", "tolerance");
  eigenvalue.unsupported("stability", "0.000001", "added to the norm");
  eigenvalue.unsupported("gas_boundary_resolution", "1", "steps between computations");
  eigenvalue.unsupported("layer_name", "null", "layers");
  eigenvalue.unsupported("layer_num", "null", "number of layers");
  SectionBase(table, "").unsupported("quantize_training", "{}", "quantization-aware training");
  SectionBase(table, "quantize_training").refused("quantization-aware training", "");
}

}  // namespace trivet::config
