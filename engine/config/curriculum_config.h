// The sections of a Config that say which samples a step reads, and which part of a model or of its samples it leaves out:
// curriculum_learning, data_efficiency (docs/config.md).
#pragma once

#include <cstdint>
#include <vector>

#include "core/enum_names.h"

namespace trivet {

enum class DifficultySchedule { FixedLinear, FixedRoot, FixedDiscrete };

template <>
struct EnumNames<DifficultySchedule> {
  static constexpr std::array<std::pair<std::string_view, DifficultySchedule>, 3> table{
      {{"fixed_linear", DifficultySchedule::FixedLinear},
       {"fixed_root", DifficultySchedule::FixedRoot},
       {"fixed_discrete", DifficultySchedule::FixedDiscrete}}};
};

// The way in which the difficulty rises. In Config::curriculum, with short sequences first, the difficulty of a step is
// the number of tokens of its sequences (engine/config/curriculum.h). Numbers that are 0 are not given.
struct CurriculumConfig {
  bool enabled = false;
  int64_t min_difficulty = 0, max_difficulty = 0;
  DifficultySchedule schedule = DifficultySchedule::FixedLinear;
  int64_t total_steps = 0, difficulty_step = 0, root_degree = 0;  // FixedLinear and FixedRoot, which alone has a degree
  std::vector<int64_t> difficulties, last_steps;  // FixedDiscrete: the last step of each difficulty but the last one

  bool operator==(const CurriculumConfig&) const = default;
};

enum class DifficultyType { Value, Percentile };

template <>
struct EnumNames<DifficultyType> {
  static constexpr std::array<std::pair<std::string_view, DifficultyType>, 2> table{
      {{"value", DifficultyType::Value}, {"percentile", DifficultyType::Percentile}}};
};

// The use of a metric: it cuts the samples of a step, or chooses them.
enum class Clustering { SingleCluster, ScheduleBased };

template <>
struct EnumNames<Clustering> {
  static constexpr std::array<std::pair<std::string_view, Clustering>, 2> table{
      {{"single_cluster", Clustering::SingleCluster}, {"schedule_based", Clustering::ScheduleBased}}};
};

// A metric by which samples are chosen. `schedule` has the difficulty of each step; its `enabled` says that the metric is used.
struct SampleMetric {
  DifficultyType type = DifficultyType::Value;
  Clustering clustering = Clustering::ScheduleBased;
  CurriculumConfig schedule;
};

// Easy samples first: a step reads only samples that are at most as difficult as the step, by each metric that is used
// (data/difficulty.h).
struct SampleCurriculum {
  bool enabled = false;
  bool length_cuts = false;  // the schedule of the length became Config::curriculum
  SampleMetric length{.clustering = Clustering::SingleCluster, .schedule = {}};
  SampleMetric rarity;
};

// DeepSpeed's switches around its second form of a curriculum and around model::TokenDrop. The two numbers repeat what other
// keys say, and are only checked: how many blocks there are, and how many of them leave tokens out. 0: not given.
struct DataEfficiencyConfig {
  bool enabled = false, sampling = false, routing = false;
  int64_t total_layers = 0, dropping_layers = 0;
};

}  // namespace trivet
