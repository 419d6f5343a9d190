// Images of texts: a folder of PNG files of one shape, and a file labels.txt that says what is written on them.
//
//   0001.png<tab>river
//   0002.png<tab>stone
//
// Characters are numbered from 1 in the order of their codes, among those that occur in the training labels; 0 is the blank of
// the CTC loss (kernels/ctc.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/images.h"

namespace trivet::data {

inline constexpr const char* kWordLabels = "labels.txt";
inline constexpr int64_t kMaxWordLength = 1024;

struct WordLabel {
  std::string file, text;
};

// `path` is for messages. Throws DataError for a line that is no label.
std::vector<WordLabel> parse_word_labels(std::string_view text, const std::string& path);

// `characters`: those that are accepted, in order; empty: those of the labels, which are put there.
Images read_word_folder(const std::string& path, std::string& characters);

}  // namespace trivet::data
