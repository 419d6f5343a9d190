// What an exported folder says about tokens and conversations. scripts/hf_roundtrip lets transformers read it.
#include "interchange/hugging_face/text_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/chat_template.h"
#include "data/tokenizers/of_model.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// 256 bytes, <|endoftext|> and these.
std::string tokenizer_with(const std::vector<std::string>& special, const data::TokenRoles& roles = {}) {
  data::BpeVocabulary vocabulary = data::vocabulary_of_merges({}, "test");
  for (const std::string& token : special) {
    vocabulary.special.push_back(static_cast<int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(token);
  }
  return data::with_roles(std::make_shared<data::BpeTokenizer>(std::move(vocabulary), "test"), roles)->to_text();
}
const std::string kChat = tokenizer_with({"<|im_start|>", "<|im_end|>"});

TEST(TextTokens, AnAnswerEndsAsItsTemplateSaysAndATextAsTheTokenizerSays) {
  const TextTokens text = text_tokens_of(kChat, ChatTemplate::None), answers = text_tokens_of(kChat, ChatTemplate::ChatMl);
  EXPECT_EQ(text.end, "<|endoftext|>");
  EXPECT_THAT(text.end_ids, ElementsAre(256));
  EXPECT_EQ(text.begin_id, 256);
  EXPECT_EQ(answers.end, "<|im_end|>");
  EXPECT_THAT(answers.end_ids, ElementsAre(258, 256));
  const std::string stated = tokenizer_with({"<|im_start|>", "<|im_end|>"}, {"<|im_end|>", "<|im_start|>"});
  EXPECT_THAT(text_tokens_of(stated, ChatTemplate::None).end_ids, ElementsAre(258));
  EXPECT_EQ(text_tokens_of(stated, ChatTemplate::None).begin_id, 257);
  EXPECT_THAT(text_tokens_of(tokenizer_with({}), ChatTemplate::ChatMl).end_ids, ElementsAre(256));
  EXPECT_THAT(text_tokens_of("{\"trivet_tokenizer\":\"bytes\"}", ChatTemplate::ChatMl).end_ids, IsEmpty());
  EXPECT_EQ(template_with_tokens_of(kChat), ChatTemplate::ChatMl);
  EXPECT_EQ(template_with_tokens_of(tokenizer_with({})), ChatTemplate::None);
}

TEST(TextFiles, SayWhereGenerationStopsAndHowAConversationIsWritten) {
  const TextTokens tokens = text_tokens_of(kChat, ChatTemplate::ChatMl);
  EXPECT_EQ(json::parse(generation_config_text(tokens)), json::parse(R"({"bos_token_id": 256, "eos_token_id": [258, 256]})"));
  EXPECT_EQ(json::parse(generation_config_text({})), json::parse(R"({"bos_token_id": null, "eos_token_id": null})"));
  const json config = json::parse(tokenizer_config_text(tokens, "tokenizer.json", ChatTemplate::ChatMl, 64));
  EXPECT_EQ(config.at("eos_token"), "<|im_end|>");
  EXPECT_EQ(config.at("bos_token"), "<|endoftext|>");
  EXPECT_EQ(config.at("model_max_length"), 64);
  EXPECT_EQ(config.at("chat_template"), jinja_of(ChatTemplate::ChatMl));
  EXPECT_FALSE(json::parse(tokenizer_config_text(tokens, "tokenizer.json", ChatTemplate::None, 64)).contains("chat_template"));
  for (const ChatTemplate chat_template : {ChatTemplate::ChatMl, ChatTemplate::Llama2, ChatTemplate::Llama3})
    for (const std::string& token : data::special_tokens_of(chat_template))
      EXPECT_THAT(jinja_of(chat_template), HasSubstr(token));
}

// In the file of its own and in that of the tokenizer; with any other character it is another template.
TEST(TextFiles, AFolderHasOneOfOurTemplatesOrNone) {
  support::MemoryFileSystem files;
  files.create_directory("/m");
  const auto in = [&](const std::string& name, const std::string& text) {
    write_text(files, "/m/" + name, text);
    return chat_template_in(files, "/m");
  };
  EXPECT_EQ(chat_template_in(files, "/m"), ChatTemplate::None);
  for (const ChatTemplate ours : {ChatTemplate::ChatMl, ChatTemplate::Llama2, ChatTemplate::Llama3}) {
    const std::string jinja = jinja_of(ours);
    EXPECT_EQ(in("tokenizer_config.json", json{{"chat_template", jinja}}.dump()), ours);
    EXPECT_EQ(in("tokenizer_config.json", json{{"chat_template", jinja + " "}}.dump()), ChatTemplate::None);
    EXPECT_EQ(likely_template_in(files, "/m"), ours);
    if (ours == ChatTemplate::Llama2) continue;
    in("tokenizer_config.json", json{{"chat_template", jinja + "<|im_sep|>"}}.dump());  // as Phi-4's
    EXPECT_EQ(likely_template_in(files, "/m"), ChatTemplate::None);
  }
  for (const ChatTemplate ours : {ChatTemplate::ChatMl, ChatTemplate::Llama2, ChatTemplate::Llama3}) {
    EXPECT_EQ(in("chat_template.jinja", jinja_of(ours)), ours);
    EXPECT_EQ(in("chat_template.jinja", jinja_of(ours) + "{{ '' }}"), ChatTemplate::None);
  }
}

TEST(TextFiles, AnOriginalsFilesAreChangedOnlyAsTheTrainingNeedsIt) {
  const TextTokens tokens = text_tokens_of(kChat, ChatTemplate::ChatMl);
  std::map<std::string, std::string> files{{"generation_config.json", R"({"eos_token_id": 256, "top_p": 0.5})"},
                                           {"tokenizer_config.json", R"({"eos_token": "<|endoftext|>", "x": 1})"}};
  std::string config = R"({"eos_token_id": 256})";
  EXPECT_THAT(adapt_to_template(tokens, ChatTemplate::ChatMl, TemplateOfOriginal::Replaced, config, files),
              ElementsAre("generation stops at <|im_end|>, too, with which answers of data.chat_template \"chatml\" end",
                          "the chat template is \"chatml\", as data.chat_template says"));
  EXPECT_EQ(json::parse(config), json::parse(R"({"eos_token_id": [258, 256]})"));
  EXPECT_EQ(json::parse(files.at("generation_config.json")), json::parse(R"({"eos_token_id": [258, 256], "top_p": 0.5})"));
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")).at("x"), 1);
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")).at("eos_token"), "<|im_end|>");
  // What already fits stays as it is.
  const auto before = files;
  const std::string config_before = config;
  EXPECT_THAT(adapt_to_template(tokens, ChatTemplate::ChatMl, TemplateOfOriginal::Replaced, config, files), IsEmpty());
  EXPECT_EQ(files, before);
  EXPECT_EQ(config, config_before);
  EXPECT_THAT(adapt_to_template(tokens, ChatTemplate::None, TemplateOfOriginal::Replaced, config, files),
              ElementsAre(HasSubstr("the chat template is that of --like; the config of the run names no data.chat_template")));
  // Another template is replaced, wherever it is, even if it has the same tokens (Phi-4's), unless the command keeps it.
  const std::string richer = "{{ '<|im_start|>user<|im_sep|>x<|im_end|>' }}";
  files["chat_template.jinja"] = richer;
  EXPECT_THAT(adapt_to_template(tokens, ChatTemplate::ChatMl, TemplateOfOriginal::Stays, config, files),
              ElementsAre("the chat template is still that of --like; the training wrote its conversations with \"chatml\""));
  EXPECT_EQ(files.at("chat_template.jinja"), richer);
  EXPECT_THAT(adapt_to_template(tokens, ChatTemplate::ChatMl, TemplateOfOriginal::Replaced, config, files),
              ElementsAre("the chat template is \"chatml\", as data.chat_template says, instead of the one in --like; "
                          "--chat-template original keeps that"));
  EXPECT_FALSE(files.contains("chat_template.jinja"));
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")).at("chat_template"), jinja_of(ChatTemplate::ChatMl));
  EXPECT_THAT(adapt_to_template(tokens, ChatTemplate::Llama3, TemplateOfOriginal::ReplacedByFlag, config, files),
              ElementsAre(HasSubstr("the tokenizer has no special token <|eot_id|>"),
                          HasSubstr("the chat template is \"llama-3\", as --chat-template says, instead of")));
}

}  // namespace
}  // namespace trivet::hugging_face
