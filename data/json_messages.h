// Messages in lines of JSON, and keys of lines that mean something for training.
//
//   {"role": "user", "content": "..."}     or, as ShareGPT has it, {"from": "human", "value": "..."}
//
// The content is a text or a list of parts, {"type": "text", "text": "..."}, which are joined. "weight", "train" and the like
// say whether the loss counts what the assistant says. A key that means something and has no place in a chat template is
// refused; all other keys are noted as not read. A key whose value is null is as good as absent, and an empty list and an empty
// object are nothing.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat_template.h"
#include "data/line_facts.h"

namespace trivet::data {

[[noreturn]] void refuse_line(const std::string& message);

std::string string_at(const nlohmann::json& object, const char* key);

// Removes the keys that are null, at any depth.
void drop_nulls(nlohmann::json& json);

// Throws DataError if the value at `key` is no list of messages, or if there is no chat template for them.
std::vector<Message> messages_at(const nlohmann::json& object, const char* key, ChatTemplate chat_template, LineFacts& facts);

// Refuses an answer that is not wanted: KTO's "label", which is false or 0.
void refuse_unwanted_answer(const nlohmann::json& object);

// Refuses keys of a sample without which it would mean something else, such as tools and images.
void refuse_unusable_keys(const nlohmann::json& object);

// Notes all keys but these.
void note_unread_keys(const nlohmann::json& object, std::initializer_list<std::string_view> read, LineFacts& facts);

}  // namespace trivet::data
