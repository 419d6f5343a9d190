#include "trainer/initial_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "core/error.h"
#include "core/printable.h"
#include "core/shell_words.h"
#include "data/dataset.h"
#include "data/file_pattern.h"
#include "data/tokenizer.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/finite_source.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/config/mistakes.h"
#include "engine/config/refuse.h"
#include "engine/config/vocabulary_rows.h"
#include "engine/same_on_all_ranks.h"
#include "interchange/hugging_face/model_format.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "interchange/hugging_face/same_model.h"
#include "interchange/hugging_face/text_files.h"
#include "trainer/new_adapters.h"
#include "trainer/open_data.h"
#include "trainer/resume.h"
#include "trainer/saved_model.h"
#include "trainer/stopwatch.h"

namespace trivet::trainer {
namespace {

constexpr int64_t kBytes = 256;

// Returns the key that names the weights, for messages.
const char* key_in(const Config& config) { return is_given(config, "model.from") ? "model.from" : "--init-from"; }

[[noreturn]] void refuse_without_tokenizer(const SavedModel& initial, const std::string& path, const Config& config) {
  const std::string put =
      initial.step()
          ? fmt::format("{} holds no tokenizer: name that of the model in model.vocabulary", printable(initial.folder()))
          : fmt::format(
                "the folder {} has no tokenizer: put the tokenizer.json or tokenizer.model of the model there, or name it "
                "in model.vocabulary",
                printable(initial.folder()));
  throw ConfigError(fmt::format(
      "{}: {} {}: the data are texts, which are encoded with the tokenizer of the model, and {}, or name files of tokens that "
      "were made with it",
      config.source, key_in(config), printable(path), put));
}

// The rows of a model belong to the tokens of its own tokenizer, not to bytes or characters, of which there may be fewer.
void check_same_vocabulary(const SavedModel& initial, const std::string& path, const Config& config, int64_t tokens) {
  const VocabularyKind kind = config.vocabulary.kind;
  const int64_t rows = initial.config().model.vocabulary_size;
  if (initial.config().vocabulary.kind != VocabularyKind::Size || tokens == 0 || rows == tokens ||
      (kind != VocabularyKind::Bytes && kind != VocabularyKind::Characters))
    return;
  if (initial.tokenizer_path().empty()) {
    // Bytes that the config asks for, with rows to spare, are taken: the model may be one of bytes.
    if (kind == VocabularyKind::Bytes && rows > tokens) return;
    refuse_without_tokenizer(initial, path, config);
  }
  throw ConfigError(
      fmt::format("{}: {} {}: model.vocabulary is {} ({} tokens), but the embedding of this model has {} rows, one for each "
                  "token of its tokenizer; leave the key out to use that tokenizer",
                  config.source, key_in(config), printable(path), vocabulary_in_words(config), tokens, rows));
}

void check_same_model(const SavedModel& initial, const std::string& path, const Config& config, const model::Description& ours,
                      int64_t tokens) {
  check_same_vocabulary(initial, path, config, tokens);
  if (const std::string difference = hugging_face::model_difference(ours, initial.config().model); !difference.empty())
    throw ConfigError(
        fmt::format("{}: {} {}: these weights are of another model: in the config, {}; leave these keys out to take them from "
                    "the weights",
                    config.source, key_in(config), printable(path), difference));
}

// A checkpoint holds the tokenizer that its run had read from a file, which may be gone.
std::string value_of(const ExplainedKey& key, const SavedModel& initial) {
  const VocabularyConfig& vocabulary = initial.config().vocabulary;
  if (key.path == "model.vocabulary_rows")  // also if the config names a tokenizer of its own
    return std::to_string(initial.config().model.vocabulary_size);
  const bool is_gone = key.path == "model.vocabulary" && initial.step() && vocabulary.kind == VocabularyKind::Tokenizer &&
                       data::is_absent(vocabulary.tokenizer_file);
  return is_gone && !initial.tokenizer_path().empty() ? initial.tokenizer_path() : key.value;
}

// Models of other programs state how many positions they were made for, which few samples fill: 40960, 131072. Other programs
// that fine-tune cut samples at 1024 tokens unless they are told otherwise.
constexpr int64_t kUsualLength = 1024;
bool has_more_positions_than_usual(const SavedModel& initial) {
  const model::Description& model = initial.config().model;
  return !initial.step() && model.type == model::Type::Llama && model.sequence_length > kUsualLength;
}

std::vector<std::string> keys_of(const SavedModel& initial) {
  std::vector<std::string> keys;
  for (const ExplainedKey& explained : explain(initial.config())) {
    if (!explained.path.starts_with("model.") || !explained.without_effect.empty() || explained.path == "model.from") continue;
    if (explained.path.starts_with("model.lora.") && !initial.config().model.lora.enabled()) continue;
    const model::Description& model = initial.config().model;
    if (explained.path == "model.key_value_heads" && model.key_value_heads == model.heads) continue;  // as without the key
    if (explained.path == "model.sequence_length" && has_more_positions_than_usual(initial)) {
      keys.push_back(fmt::format("model.sequence_length={}", kUsualLength));
      continue;
    }
    keys.push_back(explained.path + "=" + value_of(explained, initial));
  }
  return keys;
}

// Returns how many tokens texts have, if it is known without a model's tokenizer; 0: it is not, or none are here.
int64_t tokens_of(const Config& config) {
  if (config.vocabulary.kind == VocabularyKind::Bytes) return kBytes;
  const data::DataOptions options = trainer::data_options(config);
  if (config.vocabulary.kind != VocabularyKind::Characters || !data::reads_texts(options)) return 0;
  try {
    return data::open_sources(options)[0].vocabulary_size;
  } catch (const Error&) {
    return 0;  // whoever opens the data for training says what is wrong with it
  }
}

// Refuses weights without their characters: as many of another text would be taken for those that they know.
void refuse_unknown_characters(const SavedModel& initial, const std::string& path, const Config& config) {
  if (config.vocabulary.kind != VocabularyKind::Characters || !initial.step() || !initial.tokenizer_path().empty() ||
      initial.config().vocabulary.kind != VocabularyKind::Characters || !data::reads_texts(trainer::data_options(config)))
    return;
  throw ConfigError(
      fmt::format("{} {}: the checkpoint does not hold its characters, because Engine::save stored no tokenizer; "
                  "name the token file that its run read in model.vocabulary",
                  key_in(config), printable(path)));
}

}  // namespace

std::vector<std::string> model_keys_of(const std::string& path, const std::string& key, Weights weights) {
  return keys_of(SavedModel(path, key, weights));
}

std::vector<std::string> model_keys_of_run(const std::string& directory, const std::string& key) {
  const SavedModel initial(directory, key);
  if (initial.step()) refuse_imported(*initial.step(), key);
  return keys_of(initial);
}

void settle_with_weights(const std::string& path, Config& config, Weights weights) {
  const SavedModel initial(path, key_in(config), weights);
  const int64_t rows = initial.config().model.vocabulary_size;
  model::Description ours = config.model;
  ours.vocabulary_size = rows;  // the data may have another vocabulary, and is read later
  check_same_model(initial, path, config, ours, 0);
  const GivenKey* length = config::find_given(config, "model.sequence_length");
  if (length && length->line == config::kOfWeights.line && has_more_positions_than_usual(initial))
    config.automatic.push_back(
        {"model.sequence_length", fmt::format("{}", kUsualLength),
         fmt::format("model.sequence_length: {} of the {} positions that the model has; longer documents are cut", kUsualLength,
                     initial.config().model.sequence_length)});
  // Characters are those that the weights were trained on, whatever the text has now.
  if (config.vocabulary.kind == VocabularyKind::Characters && initial.step() &&
      initial.config().vocabulary.kind == VocabularyKind::Characters && !initial.tokenizer_path().empty())
    config.vocabulary = {VocabularyKind::Tokenizer, initial.tokenizer_path()};
  refuse_unknown_characters(initial, path, config);
  take_chat_template(initial, config);
  const bool reads_texts = data::reads_texts(trainer::data_options(config));
  if (reads_texts) check_same_vocabulary(initial, path, config, tokens_of(config));
  if (config.vocabulary.kind != VocabularyKind::Size || config.model.vocabulary_size != rows) return;
  const std::string tokenizer = initial.tokenizer_path();
  if (tokenizer.empty() && reads_texts && weights == Weights::Needed) refuse_without_tokenizer(initial, path, config);
  config.vocabulary = {reads_texts && !tokenizer.empty() ? VocabularyKind::Tokenizer : VocabularyKind::Size, tokenizer};
}

void take_chat_template(const SavedModel& initial, Config& config) {
  if (is_given(config, "data.chat_template") || !data::has_conversations(trainer::data_options(config))) return;
  ChatTemplate& ours = config.data.chat_template;
  ours = initial.config().data.chat_template;
  const bool is_likely = ours == ChatTemplate::None && initial.step() == nullptr;
  if (is_likely) ours = hugging_face::likely_template_in(file_system_with_links(), initial.folder());
  if (ours == ChatTemplate::None) return;
  config.automatic.push_back(
      {"data.chat_template", std::string(name_of(ours)),
       fmt::format("data.chat_template: {}, {} {}{}", name_of(ours), is_likely ? "whose marks are in that of" : "that of",
                   printable(initial.folder()),
                   is_likely ? "; what this program in Jinja adds by itself, such as a system message, is left out" : "")});
}

const std::string& initial_weights_of(const Config& config, const TrainOptions& options) {
  return options.init_from.empty() ? config.model_from : options.init_from;
}

void check_initial_weights(const std::string& path, const Config& config, const model::Description& ours) {
  check_same_model(SavedModel(path, key_in(config)), path, config, ours, tokens_of(config));
}

std::string load_initial_weights_if_asked(Run& run) {
  const std::string& path = initial_weights_of(run.config, run.options);
  if (path.empty()) return "";
  const char* const key = key_in(run.config);
  const SavedModel initial(path, key);
  check_same_on_all_ranks({{key, std::filesystem::absolute(path).string(), initial.digest()}}, run.world);
  const model::Description ours = run.engine.model().description.value_or(model::Description{});
  check_same_model(initial, path, run.config, ours, run.data->vocabulary_size());
  if (run.is_first_rank())
    for (const std::string& note : initial.notes()) run.log.info(fmt::format("{}: {}", key, note));
  const checkpoint::FiniteSource weights(initial.weights(), key);
  run.engine.load_weights(NewAdapters(weights, run.engine.model(), static_cast<uint64_t>(run.config.training.seed)));
  return initial.in_words();
}

std::string compute_references_if_needed(Run& run) {
  if (!run.references.needed() || !run.references.weights().empty()) return "";
  const std::string& path = initial_weights_of(run.config, run.options);
  const Stopwatch stopwatch;
  run.references.compute(run.engine, run.world,
                         path.empty() ? "random weights" : SavedModel(path, key_in(run.config)).digest());
  return fmt::format("the weights that the run begins with; log-probabilities of all answers computed in {:.1f} s",
                     stopwatch.milliseconds() / 1000);
}

void restore_references(Run& run, const checkpoint::LoadedStep& step) {
  if (!run.references.needed()) return;
  const std::string& stored = step.run_state().reference;
  if (stored.empty())
    throw ConfigError(
        fmt::format("{}: {} has no log-probabilities of a reference model, which training.objective \"dpo\" needs; begin a run "
                    "with these weights: --init-from {}",
                    run.config.source, step.directory(), quoted(step.directory())));
  run.references.restore(stored, step.directory());
  const std::string& path = initial_weights_of(run.config, run.options);
  if (path.empty() || real_file_system().kind(path) == EntryKind::Missing) return;  // the run needs them no more
  if (const std::string given = SavedModel(path, key_in(run.config)).digest(); given != run.references.weights())
    throw ConfigError(
        fmt::format("--init-from {}: {} compares answers with the weights that its run began with ({}), and these are others "
                    "({}); leave --init-from out, or start over without --resume",
                    printable(path), step.directory(), run.references.weights(), given));
}

}  // namespace trivet::trainer
