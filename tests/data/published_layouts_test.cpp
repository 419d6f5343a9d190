// Data sets in the layouts in which they are published, made small: each is prepared, or refused with what to do.
//
//   prepared: Dolma, C4 (training files), OASST (messages), Tulu 2, TinyStories (one text), Megatron's raw JSON
//   read:     Megatron's indexed data, OpenWebText of nanoGPT (as uint16)
//   refused:  Alpaca, UltraChat, OASST (trees), TinyStories' lists, FineWeb and all others in Parquet
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "data/token_file.h"
#include "tests/data/files.h"
#include "tests/data/packed_text.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::AllOf;
using testing::HasSubstr;

class PublishedLayouts : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(folder.at(name)).parent_path());
    folder.write(name, content);
  }
  // "DOCUMENTS: TEXT" of what `trivet data prepare` makes of the inputs, or the message of the error.
  std::string prepared(const std::vector<std::string>& inputs, ChatTemplate chat_template = ChatTemplate::None) const {
    PrepareOptions options;
    for (const std::string& input : inputs) options.inputs.push_back(folder.at(input));
    options.output = folder.at("out.tokens");
    options.chat_template = chat_template;
    options.replace = true;
    try {
      prepare(options);
    } catch (const DataError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::Usage);
      return error.what();
    }
    const auto file = open_token_file(options.output);
    std::vector<int32_t> ids(static_cast<size_t>(file->tokens()));
    file->read(0, ids);
    return std::to_string(file->info().documents) + ": " + bytes_tokenizer()->decode(ids);
  }
  // The ids that a run trains on, or the message.
  std::string trained(const std::string& name, ReadAs read_as = ReadAs::Auto) const {
    DataOptions options;
    options.data.train = folder.at(name);
    options.data.validation_fraction = 0;
    options.data.read_as = read_as;
    options.vocabulary = VocabularyKind::Size;
    options.vocabulary_size = 50257;
    try {
      const Dataset dataset = open_dataset(options);
      std::vector<int32_t> ids(static_cast<size_t>(dataset.train->tokens()));
      dataset.train->read(0, ids);
      return testing::PrintToString(ids);
    } catch (const DataError& error) {
      return error.what();
    }
  }
  const std::string card = "---\nlicense: odc-by\n---\n# A card\n";
  test::TemporaryFolder folder;
};

TEST_F(PublishedLayouts, Dolma) {
  const std::string document =
      "{\"id\": \"0\", \"text\": \"a page\", \"source\": \"common-crawl\", \"added\": \"2023-04-11T09:57:03Z\", \"created\": "
      "\"2020-01-17T12:48:23Z\", \"metadata\": {\"length\": 6, \"provenance\": \"cc_en_head-0000.json.gz:1\"}}\n";
  write("dolma/README.md", card), write("dolma/.gitattributes", "*.gz filter=lfs diff=lfs merge=lfs -text\n");
  write("dolma/data/cc_en_head-0000.json.gz", gzip_of(document + document)),
      write("dolma/data/wiki-0001.json.gz", gzip_of(document));
  EXPECT_EQ(prepared({"dolma"}), "3: a pagea pagea page");
}

TEST_F(PublishedLayouts, C4) {
  const std::string page = "{\"text\":\"a page\",\"timestamp\":\"2019-04-25T12:57:54Z\",\"url\":\"https://a.org\"}\n";
  write("c4/README.md", card), write("c4/en/c4-train.00000-of-01024.json.gz", gzip_of(page));
  write("c4/en/c4-train.00001-of-01024.json.gz", gzip_of(page)),
      write("c4/en/c4-validation.00000-of-00008.json.gz", gzip_of(page));
  EXPECT_THAT(prepared({"c4"}),
              AllOf(HasSubstr("holds training files, such as en/c4-train.00000-of-01024.json.gz, and 1 file for tests "
                              "or validation by its name: en/c4-validation.00000-of-00008.json.gz"),
                    HasSubstr("alone, such as \"" + folder.at("c4/en/*train*") + "\"")));
  EXPECT_EQ(prepared({"c4/en/*train*"}), "2: a pagea page");
  EXPECT_EQ(prepared({"c4/en/c4-train.00000-of-01024.json.gz", "c4/en/c4-train.00001-of-01024.json.gz"}), "2: a pagea page");
}

TEST_F(PublishedLayouts, Alpaca) {
  write("alpaca_data.json",
        "[\n    {\n        \"instruction\": \"Add.\",\n        \"input\": \"1 + 1\",\n        \"output\": \"2\"\n    },\n"
        "    {\n        \"instruction\": \"Stop.\",\n        \"input\": \"\",\n        \"output\": \"Yes.\"\n    }\n]");
  EXPECT_THAT(
      prepared({"alpaca_data.json"}),
      HasSubstr(
          "alpaca_data.json: object 1: has \"input\", \"instruction\", \"output\"; it must have \"text\", \"prompt\" and "
          "\"completion\", or \"messages\": write \"instruction\", with \"input\" after it, as \"prompt\", and \"output\" "
          "as \"completion\""));
}

// P3 and FLAN, MetaMathQA, NuminaMath, CNN/DailyMail, and what programs write.
TEST_F(PublishedLayouts, QuestionsWithAnswersUnderOtherNames) {
  for (const auto& [line, advice] :
       {std::pair(R"({"prompt": "two and two", "response": "is four"})", R"(: write "response" as "completion")"),
        {R"({"inputs": "two and two", "targets": "is four", "task": "sum"})",
         R"(: write "inputs" as "prompt", and "targets" as "completion")"},
        {R"({"query": "two and two", "response": "is four"})",
         R"(: write "query" as "prompt", and "response" as "completion")"},
        {R"({"problem": "two and two", "solution": "is four"})", R"(: write "problem" as "prompt", and "solution" as)"},
        {R"({"article": "two and two", "summary": "is four"})", R"(: write "article" as "prompt", and "summary" as)"},
        {R"({"prompt": "two and two", "completions": ["is four"]})",
         R"(: write "completions", a text instead of a list, as "completion")"}}) {
    write("answers.jsonl", std::string(line) + "\n");
    EXPECT_THAT(prepared({"answers.jsonl"}), HasSubstr(advice)) << line;
  }
}

TEST_F(PublishedLayouts, UltraChat) {
  write("train_0.jsonl", "{\"id\":\"0\",\"data\":[\"How are you?\",\"Well.\"]}\n");
  EXPECT_THAT(
      prepared({"train_0.jsonl"}),
      HasSubstr(
          "line 1: has \"data\", \"id\"; it must have \"text\", \"prompt\" and \"completion\", or \"messages\": write \"data\" "
          "as \"messages\", in which \"role\" is user and assistant in turn"));
}

TEST_F(PublishedLayouts, OasstAsMessagesAndAsTrees) {
  write("2023-04-12_oasst_ready.messages.jsonl.gz",
        gzip_of("{\"message_id\":\"6a\",\"user_id\":\"2c\",\"text\":\"Why?\",\"role\":\"prompter\",\"lang\":\"en\"}\n"
                "{\"message_id\":\"6b\",\"parent_id\":\"6a\",\"user_id\":\"2d\",\"text\":\"So.\",\"role\":\"assistant\","
                "\"lang\":\"en\"}\n"));
  EXPECT_THAT(prepared({"2023-04-12_oasst_ready.messages.jsonl.gz"}),
              HasSubstr("line 1: has \"text\" and the \"role\" \"prompter\": it is one message, not a conversation"));
  write(
      "2023-04-12_oasst_ready.trees.jsonl.gz",
      gzip_of(
          "{\"message_tree_id\":\"6a\",\"tree_state\":\"ready_for_export\",\"prompt\":{\"message_id\":\"6a\",\"text\":\"Why?\","
          "\"role\":\"prompter\",\"replies\":[]}}\n"));
  EXPECT_THAT(prepared({"2023-04-12_oasst_ready.trees.jsonl.gz"}),
              HasSubstr("write each path from the prompt to a last reply as \"messages\""));
}

TEST_F(PublishedLayouts, Tulu) {
  write("tulu_v2_data.jsonl",
        "{\"dataset\": \"flan_v2\", \"id\": \"flan_v2_0\", \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, "
        "{\"role\": \"assistant\", \"content\": \"A\"}]}\n");
  EXPECT_EQ(prepared({"tulu_v2_data.jsonl"}, ChatTemplate::Llama2), "1: <s>[INST] Q [/INST] A </s>");
  write("tulu-3/data/train-00000-of-00006.parquet", "PAR1\x15\x04\0\0PAR1"s), write("tulu-3/README.md", card);
  EXPECT_THAT(prepared({"tulu-3"}),
              AllOf(HasSubstr("a Parquet file: data/train-00000-of-00006.parquet"), HasSubstr("to_json('data.jsonl')")));
}

TEST_F(PublishedLayouts, TinyStories) {
  write("ts/TinyStoriesV2-GPT4-train.txt", "Once.\n<|endoftext|>\nTwice.\n"),
      write("ts/TinyStoriesV2-GPT4-valid.txt", "Never.\n");
  write("ts/README.md", card);
  EXPECT_THAT(prepared({"ts"}),
              HasSubstr("holds training files, such as TinyStoriesV2-GPT4-train.txt, and 1 file for tests or validation"));
  EXPECT_EQ(prepared({"ts/TinyStoriesV2-GPT4-train.txt"}), "1: Once.\n<|endoftext|>\nTwice.\n");
  write("data00.json",
        "[{\"story\": \"Once upon a time.\", \"instruction\": {\"prompt:\": \"Write.\"}, \"summary\": \"A time.\"}]");
  EXPECT_THAT(prepared({"data00.json"}), HasSubstr("if \"story\" is the text, write it as \"text\""));
  write("TinyStories_all_data.tar.gz",
        gzip_of(std::string("data00.json") + std::string(246, '\0') + "ustar\0" + std::string(250, '\0')));
  EXPECT_THAT(prepared({"TinyStories_all_data.tar.gz"}),
              HasSubstr("is a tar archive, packed with gzip, which is not read; unpack it (tar -xf "));
}

TEST_F(PublishedLayouts, FineWeb) {
  for (const char* name : {"000_00000.parquet", "000_00001.parquet"})
    write("fineweb/data/CC-MAIN-2013-20/"s + name, "PAR1\x15\x04\0\0PAR1"s);
  write("fineweb/README.md", card);
  for (const std::string& message : {prepared({"fineweb"}), trained("fineweb")})
    EXPECT_THAT(message,
                AllOf(HasSubstr("fineweb: is a folder in which nothing is read"),
                      HasSubstr("split='train').to_json('data.jsonl')\" '" + folder.at("fineweb/**/*.parquet") + "'")));
}

TEST_F(PublishedLayouts, OpenWebTextOfNanoGpt) {
  const std::string ids("\xB0\x01\0\0\x51\xC4\x0B\0", 8);  // 432, 0, 50257 - 1 ...
  std::string train = ids;
  train[4] = '\x50';
  write("owt/train.bin", train), write("owt/val.bin", train.substr(4)), write("owt/prepare.py", "x"),
      write("owt/readme.md", "#");
  for (const std::string& message : {prepared({"owt/train.bin"}), trained("owt/train.bin"), trained("owt")})
    EXPECT_THAT(message, HasSubstr("nanoGPT's train.bin, are read with data.read_as \"uint16\""));
  EXPECT_THAT(trained("owt", ReadAs::UInt16), HasSubstr("holds training files, such as train.bin, and 1 file for tests"));
  EXPECT_EQ(trained("owt/train.bin", ReadAs::UInt16), "{ 432, 0, 50256, 11 }");
}

TEST_F(PublishedLayouts, MegatronsIndexedDataAndItsRawJson) {
  fs::create_directories(folder.at("megatron"));
  for (const char* ending : {".bin", ".idx"})
    fs::copy_file(TRIVET_SOURCE_DIR "/tests/golden/token_files/two"s + ending,
                  folder.at("megatron/my-gpt2_text_document"s + ending));
  const std::string direct = trained("megatron/my-gpt2_text_document.bin");
  EXPECT_TRUE(direct.starts_with("{ ")) << direct;
  EXPECT_EQ(trained("megatron"), direct);
  write("raw.json",
        "{\"src\": \"www.nvidia.com\", \"text\": \"The quick brown fox\", \"type\": \"Eng\", \"id\": \"0\", \"title\": "
        "\"First\"}\n"
        "{\"src\": \"The Internet\", \"text\": \" jumps\", \"type\": \"Eng\", \"id\": \"42\", \"title\": \"Second\"}\n");
  EXPECT_EQ(prepared({"raw.json"}), "2: The quick brown fox jumps");
  fs::remove(folder.at("megatron/my-gpt2_text_document.idx"));
  EXPECT_THAT(trained("megatron/my-gpt2_text_document.bin"),
              testing::AnyOf(HasSubstr("Megatron's NAME.bin"), HasSubstr("needs a tokenizer")));
}

}  // namespace
}  // namespace trivet::data
