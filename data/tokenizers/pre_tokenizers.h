// Splits text into words (the "pre_tokenizer" of a tokenizer.json).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "data/tokenizers/component.h"

namespace trivet::data {

// The treatment of the places where a text is split.
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

// Splits where a regular expression matches. The expressions of GPT-2, GPT-4, GPT-4o, Llama 3 and Qwen are matched without
// PCRE2.
std::unique_ptr<PreTokenizer> split_by_pattern(const std::string& expression, SplitBehavior behavior, bool invert,
                                               const std::string& source);
inline constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The expression of cl100k_base; Llama 3 writes the same one.
inline constexpr const char* kGpt4Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The expression of o200k_base.
inline constexpr const char* kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Replaces spaces by `replacement`, puts one in front, and splits before each.
enum class PrependScheme { Always, First, Never };
std::unique_ptr<PreTokenizer> metaspace(std::string replacement, PrependScheme prepend, bool split);

struct PreTokenization {
  std::unique_ptr<PreTokenizer> splitter;  // null: the text is one word
  // Words stand for bytes: those of the text, although files write them in the byte alphabet (byte_alphabet.h).
  bool byte_level = false;
};

// Throws DataError naming `source` and the component that is not supported.
PreTokenization read_pre_tokenizer(const nlohmann::json& json, const std::string& source);

}  // namespace trivet::data
