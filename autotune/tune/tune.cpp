#include "autotune/tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "autotune/tune/described_predictor.h"
#include "autotune/tune/measured_predictor.h"
#include "autotune/tune/metric.h"
#include "autotune/tune/rank_devices.h"
#include "autotune/tune/result_key.h"
#include "autotune/tune/tuner.h"
#include "autotune/units.h"
#include "comm/participants.h"
#include "core/error.h"
#include "engine/config/load.h"

namespace trivet::autotune {
namespace {

// `examine` also measures the disk's speed, which is not needed here; in memory that costs nothing.
constexpr const char* kQuickDirectory = "/dev/shm";

// The next task that rank 0 gives to the others.
struct Order {
  std::optional<size_t> trial;  // none: the tuning is over
  std::string ended;
};

std::string to_text(const Order& order) {
  nlohmann::json json = nlohmann::json::object();
  if (order.trial) json["trial"] = *order.trial;
  json["ended"] = order.ended;
  return json.dump();
}

Order order_from(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Order order{.ended = json.at("ended")};
  if (json.contains("trial")) order.trial = json.at("trial").get<size_t>();
  return order;
}

std::string to_text(const TuneResult& result) {
  return nlohmann::json{result.best,           result.seconds, result.spread, result.ties,
                        result.optimal_config, result.trials,  result.ended}
      .dump();
}

TuneResult result_from(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {json[0], json[1], json[2], json[3], json[4], json[5], json[6]};
}

constexpr size_t kFinalists = 3, kMoreMeasurements = 2;  // the best trials, and how often each is measured again

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Rank 0's part: it proposes trials and writes the results. When the search has ended, it has the best trials measured again in
// turns, so that all of them meet the same disturbances, before it names the best.
class Director {
 public:
  Director(const ConfigDocument& document, const Config& config, const TuningSpace& space, const model::Description& model,
           const RankDevices& devices, const std::vector<double>& predicted, ResultFolders& folders, int world_size,
           const TuneOptions& options)
      : document_(document), options_(options), world_size_(world_size), vocabulary_(model.vocabulary_size), folders_(folders) {
    report_ = {.config = &config, .space = &space, .hardware = devices.hardware, .world_size = world_size};
    make_tuner_of(predicted);
    for (const TrialConfig& trial : space.trials)
      if (!trial.fits)
        report_.records.push_back({.trial = &trial,
                                   .result = {.status = TrialStatus::DoesNotFit,
                                              .message = fmt::format("needs {:.1f} MiB per rank, but {:.1f} can be used",
                                                                     static_cast<double>(trial.memory_bytes) / (1 << 20),
                                                                     static_cast<double>(devices.memory_bytes) / (1 << 20))}});
    take_over();
  }

  Order next() {
    if (has_searched_) return next_final();
    Order order;
    const AutotuningConfig& tuning = report_.config->autotuning;
    if (static_cast<int64_t>(history_.size()) >= tuning.num_trials)
      order.ended = fmt::format("autotuning.tuner_num_trials {} reached", tuning.num_trials);
    else if (stops_early(history_, tuning.early_stopping))
      order.ended = fmt::format("{} trials in a row were not better (autotuning.tuner_early_stopping)", tuning.early_stopping);
    else if (const auto point = tuner_->next(history_))
      order.trial = runnable_[*point], point_ = *point;
    else
      order.ended = "all configs were tried";
    if (!order.trial) {
      has_searched_ = true;
      ended_ = order.ended;
      choose_finalists();
      return next_final();
    }
    folders_.begin(trial_at(*order.trial), document_, world_size_);
    return order;
  }

  void note(const TrialResult& result) {
    if (has_searched_) return note_final(result);
    record(point_, {.order = static_cast<int64_t>(history_.size()) + 1, .result = result, .measured = {result.seconds}}, false);
    keep(report_.records.back());
    say(line_of(report_.records.back()));
  }

  void finish(const std::string& ended) {
    report_.ended = ended;
    write();
  }

  TuneResult result() const {
    TuneResult result{.optimal_config = optimal_config(report_.config->autotuning),
                      .trials = static_cast<int64_t>(history_.size()),
                      .ended = report_.ended};
    if (const TrialRecord* best = report_.best()) {
      result.best = best->trial->name;
      result.seconds = best->result.seconds;
      result.spread = spread_text(best->measured);
      result.ties = ties_text(report_.as_good_as_best());
    }
    return result;
  }

  void say(const std::string& line) const {
    if (options_.report) options_.report(line);
  }

 private:
  const TrialConfig& trial_at(size_t index) const { return report_.space->trials[index]; }
  std::string key_of(const TrialConfig& trial) const {
    return result_key(trial.config, vocabulary_, report_.hardware, world_size_);
  }

  // None if there is no choice, or if nothing was run that an earlier tuning has not compared.
  void choose_finalists() {
    const auto& records = report_.records;
    if (std::ranges::none_of(records, [](const TrialRecord& one) { return one.order > 0 && !one.reused; })) return;
    for (size_t i = 0; i < records.size(); ++i)
      if (records[i].result.status == TrialStatus::Ok) finalists_.push_back(i);
    std::ranges::stable_sort(finalists_, {}, [&](size_t i) { return cost_of(records[i]); });
    finalists_.resize(finalists_.size() < 2 ? 0 : std::min(finalists_.size(), kFinalists));
  }

  Order next_final() {
    if (finals_done_ == finalists_.size() * kMoreMeasurements) return {.trial = {}, .ended = ended_};
    return {.trial = static_cast<size_t>(finalist().trial - report_.space->trials.data()), .ended = ""};
  }
  TrialRecord& finalist() { return report_.records[finalists_[finals_done_ % finalists_.size()]]; }

  void note_final(const TrialResult& result) {
    TrialRecord& record = finalist();
    ++finals_done_;
    if (result.status != TrialStatus::Ok) {
      record.result = result;
    } else if (record.result.status == TrialStatus::Ok) {
      record.measured.push_back(result.seconds);
      record.result.seconds = median_of(record.measured);
    }
    keep(record);
    if (finals_done_ <= finalists_.size() * (kMoreMeasurements - 1)) return;
    say(fmt::format("      {:<32}  {}", record.trial->name,
                    record.result.status == TrialStatus::Ok ? spread_text(record.measured) : record.result.message));
  }

  void keep(const TrialRecord& record) {
    folders_.end(record, document_, key_of(*record.trial), world_size_);
    write();
  }

  double cost_of(const TrialRecord& record) const {
    return log_cost(report_.config->autotuning.metric, *record.trial, record.result.seconds);
  }

  void record(size_t point, const EarlierTrial& ended, bool reused) {
    const TrialConfig& trial = trial_at(runnable_[point]);
    const TrialResult& result = ended.result;
    Observation observation{.point = point};
    if (result.status == TrialStatus::Ok) observation.cost = log_cost(report_.config->autotuning.metric, trial, result.seconds);
    history_.push_back(observation);
    report_.records.push_back({.trial = &trial,
                               .result = result,
                               .predicted_seconds = predicted_[point],
                               .reused = reused,
                               .order = ended.order,
                               .measured = ended.measured});
  }

  // Reuses every trial that ended in an earlier tuning with the same key, in the order in which they ended.
  void take_over() {
    std::vector<std::pair<EarlierTrial, size_t>> earlier;
    for (size_t point = 0; point < runnable_.size(); ++point) {
      const TrialConfig& trial = trial_at(runnable_[point]);
      if (auto found = folders_.find(trial, key_of(trial))) earlier.emplace_back(std::move(*found), point);
    }
    std::ranges::stable_sort(earlier, {}, [](const auto& trial) { return trial.first.order; });
    for (const auto& [trial, point] : earlier) record(point, trial, true);
    if (!earlier.empty()) say(fmt::format("reused from an earlier tuning: {} trials", earlier.size()));
  }

  void make_tuner_of(const std::vector<double>& predicted) {
    const Config& config = *report_.config;
    std::vector<Point> points;
    for (size_t i = 0; i < report_.space->trials.size(); ++i) {
      const TrialConfig& trial = trial_at(i);
      if (!trial.fits) continue;
      runnable_.push_back(i);
      predicted_.push_back(predicted[i]);
      points.push_back({.features = features_of(trial.config, world_size_),
                        .predicted = log_cost(config.autotuning.metric, trial, predicted_.back()),
                        .memory_bytes = trial.memory_bytes});
    }
    tuner_ = make_tuner(config.autotuning.tuner_type, std::move(points), static_cast<uint64_t>(config.training.seed));
  }

  void write() {
    report_.seconds = seconds_since(begin_);
    folders_.write(report_, document_, options_.command);
  }

  std::string line_of(const TrialRecord& record) const {
    const TuningMetric metric = report_.config->autotuning.metric;
    const std::string how = record.result.status == TrialStatus::Ok
                                ? metric_text(metric, metrics_of(*record.trial, record.result.seconds, world_size_).of(metric))
                                : std::string(name_of(record.result.status)) + ": " + record.result.message;
    const bool best = &record == report_.best();
    return fmt::format("{:>4}  {:<32}  {}{}{}", history_.size(), record.trial->name, how, best ? "  best so far" : "",
                       record.reused ? "  (reused)" : "");
  }

  const ConfigDocument& document_;
  const TuneOptions& options_;
  int world_size_;
  int64_t vocabulary_;
  Clock::time_point begin_ = Clock::now();
  ResultFolders& folders_;
  TuningReport report_;
  std::vector<size_t> runnable_;   // [the tuner's point] place in the space
  std::vector<double> predicted_;  // [the tuner's point] seconds
  std::unique_ptr<Tuner> tuner_;
  std::vector<Observation> history_;
  size_t point_ = 0;  // point of the running trial
  bool has_searched_ = false;
  std::string ended_;              // why the search ended
  std::vector<size_t> finalists_;  // places in the report's records
  size_t finals_done_ = 0;
};

// Any GPU counts as an H100: only the order of configs matters, and it is similar on different GPUs.
Cluster described(const RankDevices& devices, int world_size, const TuneOptions& options) {
  if (!options.cluster.empty()) return find_cluster(options.cluster);
  if (devices.gpus) return cluster_named("h100");
  return host_cluster(examine({.directory = kQuickDirectory, .threads = options.threads * world_size, .opens_modules = false}),
                      world_size);
}

// Offload to files, or from a GPU, has no modelled time (rehearse_step).
bool has_modelled_time(const Config& config, const RankDevices& devices) {
  const auto fine = [&](OffloadDevice device) {
    return device == OffloadDevice::None || (device == OffloadDevice::Cpu && !devices.gpus);
  };
  return fine(config.zero.offload_optimizer.device) && fine(config.zero.offload_param.device) &&
         !(config.cpu_checkpointing && devices.gpus);
}

// The predictions of most tuners only stand in the report, so a host that cannot be measured is tuned without them: null.
std::unique_ptr<StepPredictor> described_predictor(const Config& config, const model::Description& model,
                                                   const RankDevices& devices, int world_size, const TuneOptions& options) {
  try {
    return make_described_predictor(config, model, described(devices, world_size, options));
  } catch (const Error& error) {
    if (!options.cluster.empty() || config.autotuning.tuner_type == TunerType::ModelBased) throw;
    if (options.report) options.report(fmt::format("no predictions: {}", error.what()));
    return nullptr;
  }
}

// [trial] Predicted seconds; 0 for those that do not fit. All ranks call it together; rank 0 gets all of the predictions.
std::vector<double> predict(const TuningSpace& space, const Config& config, const model::Description& model,
                            const RankDevices& devices, comm::World& world, const TuneOptions& options) {
  const bool rank_0 = world.rank() == 0;
  const auto say = [&](const std::string& line) {
    if (rank_0 && options.report) options.report(line);
  };
  const bool measures =
      !options.profile.empty() ||
      (options.cluster.empty() && config.autotuning.tuner_type == TunerType::ModelBased && has_modelled_time(config, devices));
  const Device device = devices.gpus ? Device::Cuda : Device::Cpu;
  std::unique_ptr<StepPredictor> predictor;
  if (!measures) {
    if (rank_0) predictor = described_predictor(config, model, devices, world.size(), options);
  } else if (!options.profile.empty()) {
    predictor =
        make_measured_predictor(read_profile(options.profile), options.profile, model, device, options.threads, world.size());
  } else {
    say(fmt::format("measuring kernels{} of {} rank{} for {:.0f} s each", world.size() > 1 ? " and communication" : "",
                    world.size(), world.size() > 1 ? "s" : "", options.measuring_seconds));
    const HardwareProfile profile =
        measure_ranks(world, device, options.threads, options.local_rank, options.measuring_seconds);
    predictor = make_measured_predictor(profile, "autotuning", model, device, options.threads, world.size());
  }
  if (measures) say(fmt::format("rehearsing {} configs with these times", space.trials.size()));
  // Rehearsing is worth sharing among ranks; predicting from a description is quick on rank 0 alone.
  const size_t ranks = measures ? world.size() : 1;
  nlohmann::json mine = nlohmann::json::array();
  for (size_t i = world.rank(); predictor && i < space.trials.size(); i += ranks)
    mine.push_back(space.trials[i].fits ? predictor->seconds(space.trials[i].config, world.size()) : 0.0);
  std::vector<nlohmann::json> parts;
  for (const std::string& text : comm::over_group(world.group()).gather(mine.dump()))
    parts.push_back(nlohmann::json::parse(text));
  std::vector<double> seconds;
  for (size_t i = 0; i < space.trials.size(); ++i) seconds.push_back(parts[i % ranks][i / ranks]);
  return seconds;
}

}  // namespace

TuneResult tune(const ConfigDocument& document, const model::Description& description, comm::World& world,
                const TuneOptions& options) {
  const Config config = document.config();
  check_autotuning(config);
  const RankDevices devices = find_rank_devices(config, world, options.threads, options.local_rank);
  const model::Model model = model::build(description);
  const TuningSpace space = planned_space(document, config, model, devices.memory_bytes, world);
  std::optional<ResultFolders> folders;  // before the measurements: a folder that cannot be written to is refused at once
  if (world.rank() == 0) folders.emplace(*options.files, config.autotuning, config.autotuning.overwrite && !options.resume);
  const std::vector<double> predicted = predict(space, config, description, devices, world, options);
  std::unique_ptr<Director> director;
  if (world.rank() == 0)
    director =
        std::make_unique<Director>(document, config, space, description, devices, predicted, *folders, world.size(), options);
  const auto told = [&](const std::string& text) { return comm::over_group(world.group()).gather(text).front(); };
  const TrialOptions trial_options{.threads = options.threads,
                                   .local_rank = options.local_rank,
                                   .first_measured = config.autotuning.start_profile_step,
                                   .steps = config.autotuning.end_profile_step,
                                   .files = options.files};
  while (true) {
    const Order order = order_from(told(director ? to_text(director->next()) : ""));
    if (!order.trial) {
      if (director) director->finish(order.ended);
      break;
    }
    TrialResult result;
    try {
      result = run_trial(space.trials[*order.trial].config, description, world, trial_options);
    } catch (const CommError&) {  // another rank is lost, perhaps not because of this config
      throw;
    } catch (const std::exception& error) {  // within a step: the job ends; a resumed tuning continues after this trial
      if (director) director->note({.status = TrialStatus::Failed, .message = error.what()});
      throw;
    }
    if (director) director->note(result);
  }
  const TuneResult result = result_from(told(director ? to_text(director->result()) : ""));
  if (result.best.empty())
    throw Error(ExitCode::Usage, fmt::format("{}: autotuning: none of {} trials ran to its end; see {}/NAME/stderr.log",
                                             config.source, result.trials, config.autotuning.results_dir));
  return result;
}

}  // namespace trivet::autotune
