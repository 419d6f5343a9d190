// Turns texts into one token file, for `trivet data prepare`. Several threads encode; what they have done outlives an
// interruption (encoded_parts.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/options.h"

namespace trivet::data {

struct PrepareOptions {
  std::vector<std::string> inputs = {};  // texts, objects of JSON, folders of both; plain, gzip or zstd; in this order
  ReadAs read_as = ReadAs::Auto;         // not of ids
  std::string output = "";
  std::string vocabulary = "bytes";  // "bytes", "characters" (of all inputs), a tokenizer file or a folder with one
  int64_t train_bpe = 0;             // > 0: learn a BPE vocabulary of this size from the inputs instead
  bool end_of_text = false;          // <|endoftext|>, or what the tokenizer has in its place, after each text
  bool special_tokens = false;       // recognized in texts, and those of the tokenizer's frame are put around each text
  ChatTemplate chat_template = ChatTemplate::None;
  bool pairs = false;  // lines of JSON are pairs of answers (json_lines.h)
  int threads = 0;     // threads that encode; 0: as many as the machine has processors, at most 16
  size_t piece_bytes = size_t{1} << 24;
  bool replace = false;  // an existing output is replaced
};

struct PrepareResult {
  int64_t text_bytes = 0, tokens = 0, vocabulary_size = 0, file_bytes = 0, documents = 0;
  int64_t ignored_tokens = 0;                  // tokens that the loss ignores
  int64_t pieces = 0, pieces_done_before = 0;  // the latter by an interrupted preparation
  std::vector<std::string> notes = {};         // facts for the user
  std::string tokenizer = "", digest = "";
};

struct PrepareStatus {
  std::string_view phase;  // in a few words
  double done = 0;         // share of the phase, from 0 to 1
  int64_t bytes = 0;       // text that the phase has worked on; 0 if it works on something else
};
using PrepareProgress = std::function<void(const PrepareStatus&)>;

// Mistakes that can be known in advance throw DataError before any long work. The output appears complete or not at all. After
// an error, what was encoded stays in the folder OUTPUT.parts for the next attempt.
PrepareResult prepare(const PrepareOptions& options, const PrepareProgress& progress = {});

}  // namespace trivet::data
