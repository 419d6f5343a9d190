// A small model of Hugging Face's format, with a tokenizer of a few words.
#pragma once

#include <filesystem>
#include <string>

#include "tests/cli/program.h"

namespace trivet::test {

// A folder of a model whose embedding has 97 rows, with a tokenizer of `tokens` ids, of which only the first three and the last
// one have a token.
inline void write_padded_model(const Folder& folder, const std::string& name, int tokens) {
  std::filesystem::create_directories(folder.at(name));
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(std::string(TRIVET_SOURCE_DIR "/tests/golden/hf/qwen2/") + file, folder.at(name + "/" + file));
  const std::string last = std::to_string(tokens - 1);
  folder.write(name + "/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  folder.write(name + "/tokenizer.json",
               R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
                   "added_tokens": [{"id": )" +
                   last + R"(, "content": "<|im_end|>", "single_word": false, "lstrip": false,
                                     "rstrip": false, "normalized": false, "special": true}],
                   "pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
                   "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                             "max_input_chars_per_word": 9, "vocab": {"[UNK]": 0, "a": 1, "b": 2, "<|im_end|>": )" +
                   last + "}}}");
}

}  // namespace trivet::test
