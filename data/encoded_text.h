// Texts as tokens: their ids, where documents end, and which tokens are only read and never expected from the model, such as
// the question before an answer.
#pragma once

#include <cstdint>
#include <vector>

#include "data/line_facts.h"

namespace trivet::data {

struct EncodedText {
  std::vector<int32_t> ids;
  std::vector<uint8_t> ignored;        // for each id, 1 if the loss ignores it as a target; empty: it ignores none
  std::vector<int64_t> document_ends;  // ids up to the end of each document; ascending
  LineFacts facts = {};                // facts about the lines of JSON that the texts come from
};

// Adds the tokens and documents of `more` after those of `text`.
void append(EncodedText& text, const EncodedText& more);

}  // namespace trivet::data
