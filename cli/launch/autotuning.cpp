#include "cli/launch/autotuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "autotune/tune/results.h"
#include "cli/launch/train_command.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/config/load.h"

namespace trivet::cli {
namespace {

enum class Value { None, Optional, Required };
enum class Goes { ToBoth, ToTraining, Nowhere };

struct TrainFlag {
  const char* name;
  Value value;
  Goes goes;
  const char* why = "";  // it goes nowhere
};

constexpr const char* kOneConfig = "the config is already given; name one";

// The flags of `trivet train` (cli/train.cpp); --set, which goes to the tuning, is here for when its value is missing.
constexpr TrainFlag kTrainFlags[] = {
    {"--set", Value::Required, Goes::ToBoth},
    {"--ranks", Value::Required, Goes::ToBoth},
    {"--init-from", Value::Required, Goes::ToBoth},  // gives keys of the model to the tuning, and weights to the training
    {"--metrics", Value::Required, Goes::ToTraining},
    {"--force", Value::None, Goes::ToTraining},
    {"--serve", Value::Optional, Goes::ToTraining},
    {"--resume", Value::Optional, Goes::ToTraining},
    {"--ddp", Value::None, Goes::Nowhere, "it fixes the layout that tuning searches; leave one of the two out"},
    {"--config", Value::Required, Goes::Nowhere, kOneConfig},
    {"--deepspeed_config", Value::Required, Goes::Nowhere, kOneConfig},
    {"--deepspeed", Value::Optional, Goes::Nowhere, kOneConfig},
};

const TrainFlag& flag_named(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const auto* const flag =
      std::find_if(std::begin(kTrainFlags), std::end(kTrainFlags), [&](const TrainFlag& one) { return name == one.name; });
  if (flag != std::end(kTrainFlags)) return *flag;
  throw ConfigError(
      fmt::format("--autotuning: \"{}\" is not a flag of trivet train; see trivet train --help", printable(word)));
}

// Returns how many words belong to the flag that begins at words[at].
size_t words_of(const TrainFlag& flag, const std::vector<std::string>& words, size_t at) {
  const bool in_one_word = words[at].find('=') != std::string::npos;
  const bool value_follows = at + 1 < words.size() && (flag.value == Value::Required || !words[at + 1].starts_with("-"));
  if (flag.value == Value::None || in_one_word) return 1;
  if (flag.value == Value::Required && !value_follows)
    throw ConfigError(fmt::format("--autotuning: {}: a value is missing", flag.name));
  return value_follows ? 2 : 1;
}

void check_that_it_goes_somewhere(const TrainFlag& flag, AfterTuning after) {
  if (flag.goes == Goes::Nowhere) throw ConfigError(fmt::format("--autotuning: {}: {}", flag.name, flag.why));
  if (flag.goes == Goes::ToTraining && after == AfterTuning::End)
    throw ConfigError(
        fmt::format("--autotuning tune: \"{}\": the job only tunes, so this would have no effect; leave it out", flag.name));
}

}  // namespace

AutotunedPrograms autotuned(const std::vector<std::string>& program, AfterTuning after) {
  const auto given = train_command(program);
  if (!given)
    throw ConfigError(
        fmt::format("--autotuning: \"{}\" cannot be tuned; PROGRAM must be: trivet train CONFIG, with its flags "
                    "after the config",
                    fmt::join(program, " ")));
  AutotunedPrograms programs{.tune = {given->program, "tune", given->config}, .train = {given->program, "train"}};
  for (const std::string& override : given->overrides) programs.tune.insert(programs.tune.end(), {"--set", override});
  programs.train.push_back(autotune::optimal_config(load_config(given->config, given->overrides).autotuning));
  const std::vector<std::string>& words = given->others;
  for (size_t at = 0; at < words.size();) {
    const TrainFlag& flag = flag_named(words[at]);
    check_that_it_goes_somewhere(flag, after);
    for (size_t left = words_of(flag, words, at); left > 0; --left, ++at) {
      if (flag.goes == Goes::ToBoth) programs.tune.push_back(words[at]);
      programs.train.push_back(words[at]);
    }
  }
  return programs;
}

}  // namespace trivet::cli
