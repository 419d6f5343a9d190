// Documents in lines of JSON (JSONL): each line is an object with one of
//
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}    a conversation
//   {"prompt": "...", "completion": "..."}                                                         the loss ignores the prompt
//   {"text": "..."}
//   {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}        as "messages"
//
// in this order of preference. Where pairs of answers are wanted (LineKind::Pair), it is instead
//
//   {"prompt": "...", "chosen": "...", "rejected": "..."}
//
// or the same with lists of messages. The prompt may be left out: what both answers begin with is then the prompt.
// "prompt" and "completion" may be lists of messages, too. A key that is null is absent. Keys that would change what is learned
// are refused (json_messages.h); others are not read, and LineFacts names them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/document.h"
#include "data/line_facts.h"
#include "data/options.h"
#include "data/tokenizer.h"

namespace trivet::data {

inline constexpr int64_t kMaxLineBytes = int64_t{64} << 20;

struct LineOptions {
  LineKind kind = LineKind::Text;
  ChatTemplate chat_template = ChatTemplate::None;
  std::string end_of_text = "";   // a special token after each completion; empty: none
  bool end_of_each_text = false;  // also after each "text"
  SpecialFrame frame = {};        // around all but conversations, whose chat template has its own
};

// One document or, of a pair, the preferred one and the rejected one. Throws DataError, without the name of the file, if the
// line is not as above. Adds the keys that are not read to `facts`, if it is given.
std::vector<Document> documents_of_line(std::string_view line, const LineOptions& options, LineFacts* facts = nullptr);

}  // namespace trivet::data
