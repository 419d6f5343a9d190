// The tokens that a model's folder names for the end of an answer and the beginning of a text.
#include "data/tokenizers/of_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/bpe.h"
#include "data/byte_alphabet.h"
#include "data/document_encoder.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// 256 bytes, <|endoftext|>, <|im_start|>, <|im_end|>.
std::string tokenizer_text() {
  BpeVocabulary vocabulary = vocabulary_of_merges({}, "test");
  for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
    vocabulary.special.push_back(static_cast<int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.emplace_back(token);
  }
  return BpeTokenizer(std::move(vocabulary), "test").to_text();
}

struct Folder {
  std::string what;
  std::map<std::string, std::string> files;
  std::string end, begin = "<|endoftext|>";
};
void PrintTo(const Folder& folder, std::ostream* out) { *out << folder.what; }

class TokenizerOfAModel : public testing::TestWithParam<Folder> {};

TEST_P(TokenizerOfAModel, TakesItsEndFromTheFirstFileThatNamesIt) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", tokenizer_text());
  for (const auto& [name, text] : GetParam().files) folder.write(name, text);
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(end_of_text_of(*tokenizer), GetParam().end);
  EXPECT_EQ(begin_of_text_of(*tokenizer), GetParam().begin);
  const int32_t id = tokenizer->special_id(GetParam().end);
  EXPECT_EQ(tokenizer->token_name(id), GetParam().end);
  // A completion ends with it.
  EncodedText text;
  InputPiece piece;
  piece.path = "p.jsonl";
  piece.text = R"({"prompt": "a", "completion": "b"})";
  piece.lines = true;
  text = DocumentEncoder(tokenizer, {}).encode(piece);
  EXPECT_EQ(text.ids.back(), id);
  // So it does after the tokenizer was stored and read again, and whichever path names it.
  const std::string stored = tokenizer->to_text();
  EXPECT_EQ(end_of_text_of(*tokenizer_from_text(stored, "stored")), GetParam().end);
  EXPECT_EQ(tokenizer_from_text(stored, "stored")->to_text(), stored);
  EXPECT_EQ(load_tokenizer(folder.at("tokenizer.json"))->to_text(), stored);
  // Other programs get the file as it was, and ids do not depend on it.
  EXPECT_EQ(tokenizer_file_of(stored)->content, tokenizer_text());
  EXPECT_TRUE(encode_alike(stored, tokenizer_text()));
  EXPECT_EQ(tokenizer->encode("a<|im_end|>"), tokenizer_from_text(tokenizer_text(), "")->encode("a<|im_end|>"));
}

INSTANTIATE_TEST_SUITE_P(
    Folders, TokenizerOfAModel,
    testing::Values(
        Folder{"no file", {}, "<|endoftext|>"},
        Folder{"a name", {{"tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"}}, "<|im_end|>"},
        Folder{
            "an object",
            {{"tokenizer_config.json", R"({"eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": false}})"}},
            "<|im_end|>"},
        Folder{"the names of older versions", {{"special_tokens_map.json", R"({"eos_token": "<|im_end|>"})"}}, "<|im_end|>"},
        Folder{"null, and an id of generation",
               {{"tokenizer_config.json", R"({"eos_token": null})"}, {"generation_config.json", R"({"eos_token_id": 258})"}},
               "<|im_end|>"},
        Folder{"a list of ids", {{"generation_config.json", R"({"eos_token_id": [258, 256]})"}}, "<|im_end|>"},
        Folder{"an id of the model", {{"config.json", R"({"model_type": "qwen2", "eos_token_id": 258})"}}, "<|im_end|>"},
        Folder{"all of them",
               {{"tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"},
                {"generation_config.json", R"({"eos_token_id": 256})"},
                {"config.json", R"({"eos_token_id": 257})"}},
               "<|im_end|>"},
        Folder{"generation before the model",
               {{"generation_config.json", R"({"eos_token_id": [258]})"}, {"config.json", R"({"eos_token_id": 256})"}},
               "<|im_end|>"},
        Folder{"an id without a token",
               {{"generation_config.json", R"({"eos_token_id": [50256, 258, null]})"},
                {"config.json", R"({"eos_token_id": 256})"}},
               "<|im_end|>"},
        Folder{"no id",
               {{"generation_config.json", R"({"eos_token_id": [-1, null]})"}, {"config.json", R"({"eos_token_id": 258})"}},
               "<|im_end|>"},
        Folder{"a default of the program", {{"config.json", R"({"eos_token_id": 50256})"}}, "<|endoftext|>"},
        Folder{"a token that is not special",
               {{"tokenizer_config.json", R"({"eos_token": "A", "bos_token": "<|im_start|>"})"}},
               "A",
               "<|im_start|>"},
        Folder{"a beginning alone", {{"config.json", R"({"bos_token_id": 257})"}}, "<|endoftext|>", "<|im_start|>"},
        Folder{"a config of another program", {{"config.json", "{ // model\n}"}}, "<|endoftext|>"}),
    [](const auto& folder) {
      std::string name = folder.param.what;
      std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
      return name;
    });

// As save_model of the library tokenizers writes both.
TEST(TokenizerOfModel, MergesBesideAVocabularyWithOtherIdsAreRefused) {
  const test::TemporaryFolder folder;
  const std::string merges = folder.write("merges.txt", "#version: 0.2\na b\n");
  const auto tokenizer = load_tokenizer(merges);
  nlohmann::json ids;
  for (int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
    const std::string name = tokenizer->token_name(id);
    ids[name.size() == 1 ? to_byte_alphabet(name) : name] = id;
  }
  folder.write("vocab.json", ids.dump());
  EXPECT_NO_THROW(load_tokenizer(merges));
  ids["a"] = ids["ab"], ids["ab"] = 97;
  folder.write("vocab.json", ids.dump());
  EXPECT_THAT([&] { load_tokenizer(merges); },
              ThrowsMessage<DataError>(HasSubstr("the vocab.json beside it has other ids than GPT-2's rule")));
  folder.write("merges.txt", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT([&] { load_tokenizer(merges); }, ThrowsMessage<DataError>(HasSubstr("git lfs pull")));
}

// As newer programs write them.
TEST(TokenizerOfModel, PairsOfMergesEncodeAsTheirTextsDo) {
  const auto with_merges = [](const char* merges) {
    return std::string(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": )") + merges + "}}";
  };
  EXPECT_TRUE(encode_alike(with_merges(R"(["a b"])"), with_merges(R"([["a", "b"]])")));
  EXPECT_FALSE(encode_alike(with_merges(R"(["a b"])"), with_merges(R"([["b", "a"]])")));
}

TEST(TokenizerOfModel, RefusesATokenThatItDoesNotHave) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", tokenizer_text());
  const auto refused = [&](const std::string& config, const std::string& message) {
    folder.write("tokenizer_config.json", config);
    EXPECT_THAT([&] { load_tokenizer(folder.path()); },
                ThrowsMessage<DataError>(HasSubstr("tokenizer_config.json: " + message)));
  };
  refused(R"({"eos_token": "<|eot_id|>"})", "eos_token: \"<|eot_id|>\" is no token of " + folder.at("tokenizer.json"));
  refused(R"({"eos_token": 3})", "eos_token: is number; use the text of a token");
  refused("damaged", "is no JSON object");
  refused("[", "is no JSON object");
}

// Each of these was read as if the folder had no such file.
TEST(TokenizerOfModel, NamesAFileOfTheModelThatCannotBeRead) {
  test::TemporaryFolder folder;
  const auto expect_named = [&](const std::string& name, const std::string& message) {
    EXPECT_THAT([&] { load_tokenizer(folder.path()); }, ThrowsMessage<DataError>(HasSubstr(name + message)));
    std::filesystem::remove_all(folder.at(name));
  };
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    ASSERT_EQ(mkfifo(folder.at(name).c_str(), 0600), 0);
    expect_named(name, ": is a pipe or a device");
    std::filesystem::create_symlink("nowhere", folder.at(name));
    expect_named(name, ": no such file");
  }
  folder.write("tokenizer.json", tokenizer_text());
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    folder.write(name, "{");
    EXPECT_THAT([&] { check_role_files(folder.path()); },
                ThrowsMessage<DataError>(HasSubstr(name + std::string(": is no JSON"))));
    expect_named(name, ": is no JSON object of at most 64 levels; restore or remove it");
    ASSERT_EQ(mkfifo(folder.at(name).c_str(), 0600), 0);
    expect_named(name, ": is a pipe or a device");
  }
  folder.write("generation_config.json", R"({"eos_token_id": [50256, 3000]})");
  expect_named("generation_config.json", ": eos_token_id: " + folder.at("tokenizer.json") + " has no token for 50256, 3000");
  EXPECT_NO_THROW(load_tokenizer(folder.path()));
  EXPECT_NO_THROW(check_role_files(folder.path()));
  for (const char* file : {"generation_config.json", "config.json"}) {
    folder.write("generation_config.json", "{}");
    for (const std::string id : {"\"2\"", "2.0", "true", "{\"a\":1}", "[2]"}) {
      folder.write(file, R"({"eos_token_id": [)" + id + "]}");
      expect_named(file, ": eos_token_id: " + id + " is no id of a token; use a whole number");
      folder.write(file, R"({"eos_token_id": [2, )" + id + "]}");
      expect_named(file, ": eos_token_id: " + id + " is no id of a token; use a whole number");
    }
  }
}

}  // namespace
}  // namespace trivet::data
