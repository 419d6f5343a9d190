// Turns texts into one token file, for `trivet data prepare`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

struct PrepareOptions {
  std::vector<std::string> inputs = {};  // texts, plain or .gz, in this order
  std::string output = "";
  std::string vocabulary = "bytes";  // "bytes", "characters" (of all inputs), a tokenizer file or a folder with one
  int64_t train_bpe = 0;             // > 0: learn a BPE vocabulary of this size from the inputs instead
  bool end_of_text = false;          // <|endoftext|>, or what the tokenizer has in its place, after each input
  bool special_tokens = false;       // special tokens are recognized in the text, and those of its frame put around each input
  bool replace = false;              // an existing output is replaced
};

struct PrepareResult {
  int64_t text_bytes = 0, tokens = 0, vocabulary_size = 0, file_bytes = 0;
  std::string tokenizer = "", digest = "";
};

// `phase` describes the current phase in a few words; `done` goes from 0 to 1 within it.
using PrepareProgress = std::function<void(std::string_view phase, double done)>;

// Mistakes that can be known in advance throw DataError before any long work. The output appears complete or not at all.
PrepareResult prepare(const PrepareOptions& options, const PrepareProgress& progress = {});

}  // namespace trivet::data
