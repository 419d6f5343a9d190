// A model that was saved, by a run of Trivet or by another program, open for reading: its config, its weights and its
// tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/config/config.h"
#include "interchange/hugging_face/pretrained_model.h"

namespace trivet::trainer {

// Whether a model of Hugging Face may be its config.json alone, without weights(): for plans.
enum class Weights : uint8_t { Needed, NotNeeded };

class SavedModel {
 public:
  // `path`: a folder in Hugging Face's format, a file of llm.c or llama2.c, a directory of checkpoints, or one of its steps.
  // `key` has named it, for messages ("--init-from"). Throws ConfigError if there is no model, and CheckpointError.
  SavedModel(const std::string& path, const std::string& key, Weights weights = Weights::Needed);

  const checkpoint::TensorSource& weights() const;
  // Only the section "model" of a model that another program saved, and data.chat_template if its template is one of ours.
  const Config& config() const { return config_; }
  const checkpoint::LoadedStep* step() const { return step_.get(); }  // null: another program saved it
  std::string digest() const { return pretrained_ ? pretrained_->digest() : "xxh3 " + step_->manifest().xxh3; }
  std::string in_words() const;
  std::string folder() const { return pretrained_ ? pretrained_->folder() : step_->directory(); }
  // Where its tokenizer is, and that tokenizer; empty and null: it has none.
  std::string tokenizer_path() const;
  std::shared_ptr<data::Tokenizer> tokenizer() const;
  // Checks whether config.json names bfloat16 as the type of the weights, or the run of a checkpoint trained with it.
  bool is_bfloat16() const {
    return pretrained_ ? pretrained_->stated_type() == name_of(DType::BFloat16) : config_.bf16.enabled;
  }
  // Lists what was ignored, and newer steps that are damaged, one sentence each.
  std::vector<std::string> notes() const { return pretrained_ ? pretrained_->notes() : passed_over_; }

 private:
  std::vector<std::string> passed_over_;
  std::unique_ptr<hugging_face::PretrainedModel> pretrained_;
  std::unique_ptr<checkpoint::LoadedStep> step_;
  Config config_;
};

}  // namespace trivet::trainer
