// What a run trains and validates on: the data section of a config, opened.
//
//   a text (plain or .gz)   is tokenised in memory at start
//   a token file            is read a sample at a time; the tokenizer inside it, if any, must be the one the config names
//
// Validation is a file of its own, or the last validation_fraction of the training tokens.
#pragma once

#include <memory>
#include <string>

#include "engine/config/config.h"
#include "engine/data/loader.h"
#include "engine/data/tokenizer.h"

namespace trivet::data {

struct DataOptions {
  DataConfig data = {};
  VocabularyKind vocabulary = VocabularyKind::Bytes;
  std::string tokenizer_file = "";  // vocabulary is a file
  int64_t vocabulary_size = 0;      // vocabulary is a number
  std::string source = "";          // the config's file name, for messages
};

DataOptions data_options(const Config& config);

struct Dataset {
  std::shared_ptr<TokenFile> train;
  std::shared_ptr<TokenFile> validation;  // null: there is none
  std::shared_ptr<Tokenizer> tokenizer;   // null: a token file without one
  int64_t vocabulary_size = 0;
};

Dataset open_dataset(const DataOptions& options);

// Number of tokens left for training when the last `validation_fraction` of `tokens` is for validation.
int64_t training_tokens(int64_t tokens, double validation_fraction);

}  // namespace trivet::data
