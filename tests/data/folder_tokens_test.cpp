// Added tokens that a model's folder names beside its tokenizer, compared with transformers (tests/golden/folder_tokens.py).
#include "data/tokenizers/folder_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Json = nlohmann::json;

std::vector<Json> golden_folders() {
  std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/folder_tokens.jsonl");
  std::vector<Json> folders;
  for (std::string line; std::getline(file, line);) folders.push_back(Json::parse(line));
  return folders;
}

std::string write_files(const test::TemporaryFolder& folder, const Json& files) {
  for (const auto& [name, content] : files.items()) folder.write(name, content.dump());
  return folder.path();
}

TEST(FolderTokens, EncodeAsTransformersDoes) {
  const std::vector<Json> folders = golden_folders();
  ASSERT_EQ(folders.size(), 23);
  for (const Json& golden : folders) {
    SCOPED_TRACE(golden.at("what").get<std::string>());
    const test::TemporaryFolder folder;
    const auto tokenizer = load_tokenizer(write_files(folder, golden.at("files")));
    const auto stored = tokenizer_from_text(tokenizer->to_text(), "stored");
    for (const auto& [text, ids] : golden.at("texts").items()) {
      EXPECT_EQ(tokenizer->encode_with_special(text), ids.get<std::vector<int32_t>>()) << text;
      EXPECT_EQ(stored->encode_with_special(text), ids.get<std::vector<int32_t>>()) << text;
    }
  }
}

TEST(FolderTokens, AFileThatHasThemIsKeptAsItIs) {
  const Json added = Json::parse(R"([{"id": 1, "content": "<X>", "special": true, "lstrip": true}])");
  const Json file{{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}, {"added_tokens", added}};
  const std::string text = file.dump(3);
  const test::TemporaryFolder folder;
  folder.write("tokenizer_config.json",
               R"({"added_tokens_decoder": {"1": {"content": "<X>", "special": true, "lstrip": true, "normalized": false}}})");
  EXPECT_EQ(with_folder_tokens(text, folder.path(), "f"), text);
}

struct BadFolder {
  std::string name, content, error;
};

TEST(FolderTokens, ThatContradictTheTokenizerAreRefused) {
  const Json tokenizer = golden_folders()[0].at("files").at("tokenizer.json");
  const BadFolder folders[] = {
      {"added_tokens.json", R"({"<X>": 300})",
       "has no token \"<X>\", to which added_tokens.json gives the id 300; its next free id is 10"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"11": {"content": "<X>"}}})",
       "gives the id 11; its next free id is 10"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"ten": {"content": "<X>"}}})", R"(added_tokens_decoder: "ten")"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"10": {"content": 3}}})",
       R"({"content":3} is no id with a token)"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"10": {"content": "<X>", "lstrip": 1}}})",
       "lstrip must be true or false"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": [1]})", "added_tokens_decoder: is no object"},
      {"added_tokens.json", R"({"<X>": -1})", "\"<X>\": -1 is no token with an id"},
  };
  for (const BadFolder& bad : folders) {
    const test::TemporaryFolder folder;
    folder.write("tokenizer.json", tokenizer.dump());
    folder.write(bad.name, bad.content);
    EXPECT_THAT([&] { load_tokenizer(folder.path()); }, ThrowsMessage<DataError>(HasSubstr(bad.error))) << bad.content;
  }
}

// The library gives added tokens the ids of the vocabulary, and those after it in the order of the file.
TEST(AddedIds, OtherThanThoseThatTheLibraryGivesAreRefused) {
  const test::TemporaryFolder folder;
  const auto load = [&](const Json& added, const std::string& type) {
    Json model{{"type", type}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", Json::array()}};
    const Json scores = Json::array({Json::array({"a", -1.0}), Json::array({"b", -2.0})});
    if (type == "Unigram") model = {{"type", type}, {"unk_id", 0}, {"vocab", scores}};
    return load_tokenizer(folder.write("t.json", Json{{"model", model}, {"added_tokens", added}}.dump()));
  };
  const auto token = [](int id, const char* content) { return Json{{"id", id}, {"content", content}, {"special", true}}; };
  for (const char* type : {"BPE", "Unigram"}) {
    EXPECT_EQ(load({token(1, "b"), token(2, "<A>"), token(3, "<B>")}, type)->special_id("<B>"), 3) << type;
    const auto expect_refused = [&](const Json& added, const std::string& message) {
      EXPECT_THAT([&] { load(added, type); }, ThrowsMessage<DataError>(HasSubstr("t.json: added_tokens: " + message))) << type;
    };
    expect_refused({token(2, "<A>"), token(4, "<B>")}, "\"<B>\" has the id 4, but the library tokenizers gives it 3, ");
    expect_refused({token(3, "<A>"), token(2, "<B>")}, "\"<A>\" has the id 3, but the library tokenizers gives it 2, ");
    expect_refused(Json::array({token(2, "b")}), "\"b\" has the id 2, but the library tokenizers gives it 1, ");
  }
}

// A model of sentencepiece is not rewritten, so its file must have them.
TEST(FolderTokens, OfASentencePieceModelMustBeInItsFile) {
  const test::TemporaryFolder folder;
  std::filesystem::copy_file(TRIVET_SOURCE_DIR "/tests/golden/tokenizers/llama2.model", folder.at("tokenizer.model"));
  folder.write("added_tokens.json", R"({"<s>": 1, "<sep>": 3})");
  EXPECT_NO_THROW(load_tokenizer(folder.path()));
  folder.write("added_tokens.json", R"({"<s>": 1, "<|im_end|>": 700})");
  EXPECT_THAT([&] { load_tokenizer(folder.path()); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("tokenizer.model"), HasSubstr("has no token \"<|im_end|>\""),
                                             HasSubstr("save_pretrained(FOLDER)"))));
}

}  // namespace
}  // namespace trivet::data
