// Opens the data that a run trains and validates on, as named in the data section of a config.
//
//   texts and objects of JSON are tokenized in memory at start; plain, gzip or zstd; one file, a folder or a pattern
//   token files               are read one sample at a time; their tokenizer, if any, must be the one that the config names
//
// Validation uses a separate file or the last validation_fraction of the training tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/options.h"
#include "data/token_sequence.h"
#include "data/tokenizer.h"

namespace trivet::data {

struct DataOptions {
  DataConfig data = {};
  VocabularyKind vocabulary = VocabularyKind::Bytes;
  std::string tokenizer_file = "";  // for VocabularyKind::Tokenizer; for Size: files made with another one are refused
  int64_t vocabulary_size = 0;      // for VocabularyKind::Size
  bool pairs = false;               // only pairs of answers are wanted
  bool needs_prompts = false;       // data that mark none are refused
  std::string source = "";          // the config's file name, for messages
};

struct Dataset {
  std::shared_ptr<TokenSequence> train;
  std::shared_ptr<TokenSequence> validation;  // null if there is none
  std::shared_ptr<Tokenizer> tokenizer;       // null for a token file without one
  int64_t vocabulary_size = 0;
  std::vector<std::string> notes = {};             // facts about the files for the user
  std::vector<std::string> files = {};             // where the training data are
  std::vector<std::string> validation_files = {};  // where those of data.validation are
  std::string validation_file = {};                // file that a mixture validates on; empty: it holds out its own data
  int64_t held_out_tokens = 0;                     // for validation, which the rest of the data lacks
  Packing packing = Packing::Stream;               // not Auto
};

// Checks whether options.data.train or one of options.data.sources is no file of tokens, so that a tokenizer is needed.
bool reads_texts(const DataOptions& options);
// Checks whether the first of its texts begins with messages, which need a chat template.
bool has_conversations(const DataOptions& options);

// Opens the data that options.data.train names.
Dataset open_dataset(const DataOptions& options);
// Opens each of options.data.sources, or options.data.train alone. All share one tokenizer; if it is "characters", it
// is made from the first. Sources that are the same are refused, and a note says which files are in two of them.
// options.data.validation, if given, is the validation of the first.
std::vector<Dataset> open_sources(const DataOptions& options);

// The tokenizer of a file that was opened before; further files must have an equal one.
struct OpenedBefore {
  std::shared_ptr<Tokenizer> tokenizer = nullptr;  // null: nothing was
  std::string path = "";
};
// These .tokens files, one after the other: with options.data.validation if they are the first, otherwise without validation.
Dataset open_token_files(const DataOptions& options, const std::vector<std::string>& paths, const OpenedBefore& before);

// Number of tokens left for training when the last `validation_fraction` of `tokens` is held out for validation.
int64_t training_tokens(int64_t tokens, double validation_fraction);

}  // namespace trivet::data
