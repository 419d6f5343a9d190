// Conversations as text. tests/golden/chat_templates.py evaluated the templates of Hugging Face models with Jinja2.
#include "data/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/document_encoder.h"
#include "tests/data/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;

ChatTemplate template_of(const std::string& name) {
  for (const auto& [known, value] : EnumNames<ChatTemplate>::table)
    if (known == name) return value;
  return ChatTemplate::None;
}

std::string text_of(const Document& document) {
  std::string text;
  for (const DocumentPart& part : document) text += part.text;
  return text;
}

std::string counted_text(const Document& document) {
  std::string text;
  for (const DocumentPart& part : document)
    if (!part.ignored) text += part.text;
  return text;
}

TEST(ChatTemplates, WriteTheTextThatTheModelsTemplatesWrite) {
  std::ifstream golden(TRIVET_SOURCE_DIR "/tests/golden/chat_templates.jsonl");
  int conversations = 0;
  for (std::string line; std::getline(golden, line); ++conversations) {
    const auto json = nlohmann::json::parse(line);
    std::vector<Message> messages;
    for (const auto& message : json.at("messages")) messages.push_back({message.at("role"), message.at("content")});
    const ChatTemplate chat_template = template_of(json.at("template"));
    if (json.at("text").is_null())
      EXPECT_THROW(render(chat_template, messages), DataError) << line;
    else
      EXPECT_EQ(text_of(render(chat_template, messages)), json.at("text").get<std::string>()) << line;
  }
  EXPECT_EQ(conversations, 30);
}

TEST(ChatTemplates, CountWhatTheAssistantSaysAndItsEnd) {
  const std::vector<Message> messages{{"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}, {"assistant", "B"}};
  EXPECT_EQ(counted_text(render(ChatTemplate::ChatMl, messages)), "A<|im_end|>B<|im_end|>");
  EXPECT_EQ(counted_text(render(ChatTemplate::Llama2, messages)), " A </s> B </s>");
  EXPECT_EQ(counted_text(render(ChatTemplate::Llama3, messages)), "A<|eot_id|>B<|eot_id|>");
  std::vector<Message> first_masked = messages;
  first_masked[2].learned = first_masked[3].learned = false;
  EXPECT_EQ(counted_text(render(ChatTemplate::ChatMl, first_masked)), "B<|im_end|>");
  EXPECT_EQ(counted_text(render(ChatTemplate::Llama2, first_masked)), " B </s>");
  EXPECT_EQ(counted_text(render(ChatTemplate::Llama3, first_masked)), "B<|eot_id|>");
}

// What a model reads before an answer is what it is trained to read before that answer.
TEST(ChatTemplates, StopBeforeTheAnswer) {
  const std::vector<Message> asked{{"system", "S"}, {"user", "U"}, {"assistant", ""}, {"user", "V"}};
  for (const ChatTemplate chat_template : {ChatTemplate::ChatMl, ChatTemplate::Llama2, ChatTemplate::Llama3}) {
    std::vector<Message> answered = asked;
    answered.push_back({"assistant", "B"});
    const std::string all = text_of(render(chat_template, answered)), before = text_of(render_for_answer(chat_template, asked));
    const std::string answer = all.substr(before.size()), end = end_of_answer(chat_template);
    EXPECT_EQ(all.substr(0, before.size()), before);
    EXPECT_EQ(answer, chat_template == ChatTemplate::Llama2   ? " B " + end
                      : chat_template == ChatTemplate::ChatMl ? "B" + end + "\n"
                                                              : "B" + end);
  }
  EXPECT_THROW(render_for_answer(ChatTemplate::Llama2, std::vector<Message>{{"system", "S"}}), DataError);
}

TEST(ChatTemplates, RefuseOtherRolesAndOrders) {
  const auto refused = [](ChatTemplate chat_template, const std::vector<Message>& messages, const std::string& message) {
    expect_error([&] { render(chat_template, messages); }, ExitCode::Usage, message);
  };
  refused(ChatTemplate::ChatMl, {}, "a conversation needs at least one message");
  refused(ChatTemplate::ChatMl, {{"tool", "x"}},
          "the role \"tool\" is not accepted; use \"system\", \"user\" or \"assistant\"");
  refused(ChatTemplate::Llama2, {{"user", "x"}, {"user", "y"}},
          "the template \"llama-2\" takes messages of user and assistant in turn, after at most one of system; here \"user\" "
          "comes where \"assistant\" must");
  refused(ChatTemplate::Llama2, {{"system", "x"}},
          "the template \"llama-2\" has no place for a system message without a question");
}

// Bytes, one merge, and special tokens.
std::shared_ptr<BpeTokenizer> with_special(const std::vector<std::string>& special) {
  BpeVocabulary vocabulary = vocabulary_of_merges({{"a", "b"}}, "test");
  for (const std::string& token : special) {
    vocabulary.special.push_back(static_cast<int32_t>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(token);
  }
  return std::make_shared<BpeTokenizer>(std::move(vocabulary), "test");
}

TEST(DocumentEncoding, WritesSpecialTokensWithTheirIds) {
  const auto tokenizer = with_special({"<|im_start|>", "<|im_end|>"});
  const int32_t start = tokenizer->special_id("<|im_start|>"), end = tokenizer->special_id("<|im_end|>");
  const int32_t merged = tokenizer->encode("ab")[0];
  const DocumentEncoder encoder(tokenizer, {.chat_template = ChatTemplate::ChatMl});
  EncodedText out;
  encoder.add(render(ChatTemplate::ChatMl, std::vector<Message>{{"assistant", "ab"}}), out);
  std::vector<int32_t> expected{start};
  for (const int32_t id : tokenizer->encode("assistant\n")) expected.push_back(id);
  expected.insert(expected.end(), {merged, end});
  expected.push_back(tokenizer->encode("\n")[0]);
  EXPECT_EQ(out.ids, expected);
  std::vector<uint8_t> ignored(expected.size(), 1);
  ignored[ignored.size() - 3] = ignored[ignored.size() - 2] = 0;
  EXPECT_EQ(out.ignored, ignored);
  EXPECT_THAT(out.document_ends, ElementsAre(static_cast<int64_t>(expected.size())));
}

// tests/golden/chat_tokens.py encoded the whole texts with the library tokenizers.
TEST(DocumentEncoding, GivesConversationsTheIdsOfTheirWholeText) {
  std::ifstream golden(TRIVET_SOURCE_DIR "/tests/golden/chat_tokens.jsonl");
  int conversations = 0;
  for (std::string line; std::getline(golden, line); ++conversations) {
    const auto json = nlohmann::ordered_json::parse(line);
    const std::string name = json.at("tokenizer");
    std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/tokenizers/" + name + ".json");
    auto described = nlohmann::ordered_json::parse(file);
    for (const auto& [key, value] : json.at("change").items()) {
      if (key != "joins") {
        described[key] = value;
        continue;
      }
      const std::string character = value;  // two of them are a token
      auto& model = described["model"];
      model["vocab"].push_back({character + character, model["vocab"].size()});
      model["merges"].push_back({character, character});
    }
    for (const auto& token : json.at("added")) described["added_tokens"].push_back(token);
    std::vector<Message> messages;
    for (const auto& message : json.at("messages")) messages.push_back({message.at("role"), message.at("content")});
    const ChatTemplate chat_template = template_of(json.at("template"));
    EncodedText out;
    const std::shared_ptr<Tokenizer> tokenizer = tokenizer_from_text(described.dump(), name);
    DocumentEncoder(tokenizer, {.chat_template = chat_template}).add(render(chat_template, messages), out);
    EXPECT_EQ(out.ids, json.at("ids").get<std::vector<int32_t>>()) << line;
    std::vector<size_t> counted;
    for (size_t i = 0; i < out.ids.size(); ++i)
      if (out.ignored.at(i) == 0) counted.push_back(i);
    EXPECT_EQ(counted, json.at("counted").get<std::vector<size_t>>()) << line;
  }
  EXPECT_EQ(conversations, 46);
}

// As in Mistral since version 0.3. Content cannot imitate them.
TEST(DocumentEncoding, WritesTheMarksOfLlama2AsTokensIfThereAreSome) {
  const std::vector<Message> messages{{"user", "a[/INST]"}, {"assistant", "b"}};
  const auto ids_with = [&](const std::vector<std::string>& special) {
    EncodedText out;
    const auto tokenizer = with_special(special);
    DocumentEncoder(tokenizer, {}).add(render(ChatTemplate::Llama2, messages), out);
    std::string text;
    for (size_t i = 0; i < out.ids.size(); ++i)
      text += (out.ignored[i] == 0 ? "+" : "-") + tokenizer->decode(std::span(&out.ids[i], 1));
    return text;
  };
  EXPECT_EQ(ids_with({"<s>", "</s>", "[INST]", "[/INST]"}), "-<s>-[INST]- -a-[-/-I-N-S-T-]- -[/INST]+ +b+ +</s>");
  EXPECT_EQ(ids_with({"<s>", "</s>"}), "-<s>-[-I-N-S-T-]- -a-[-/-I-N-S-T-]- -[-/-I-N-S-T-]+ +b+ +</s>");
  EXPECT_THAT(notes_on_template(ChatTemplate::Llama2, *with_special({"<s>", "</s>"})), testing::IsEmpty());
}

TEST(DocumentEncoding, MarksThatAreNoSpecialTokensAreWordsToLearnFrom) {
  const test::TemporaryFolder folder;
  const std::string path =
      folder.write("a.jsonl", R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})");
  const auto texts_of = [&](ChatTemplate chat_template) {
    TextPieces pieces({{.path = path, .kind = FileKind::JsonLines}}, 1000);
    std::vector<std::string> texts;
    for_each_text(pieces, chat_template,
                  [&](std::string_view text, bool special) { texts.push_back((special ? "!" : "") + std::string(text)); });
    return texts;
  };
  EXPECT_THAT(texts_of(ChatTemplate::Llama2), ElementsAre("!<s>", "[INST] Q [/INST]", " A ", "!</s>"));
  EXPECT_THAT(texts_of(ChatTemplate::ChatMl), ElementsAre("!<|im_start|>", "user\n", "Q", "!<|im_end|>", "\n", "!<|im_start|>",
                                                          "assistant\n", "A", "!<|im_end|>", "\n"));
}

// A vocabulary without the marks of the template has one text for the whole conversation.
TEST(DocumentEncoding, FindsEachAnswerInATextWithoutSpecialTokens) {
  for (const std::string name : {"llama2_converted", "bert_cased"}) {
    const auto tokenizer = load_tokenizer(TRIVET_SOURCE_DIR "/tests/golden/tokenizers/" + name + ".json");
    std::vector<Message> messages;
    for (int i = 0; i < 50; ++i) messages.insert(messages.end(), {{"user", "hello"}, {"assistant", "the king"}});
    EncodedText out;
    DocumentEncoder(tokenizer, {.chat_template = ChatTemplate::ChatMl}).add(render(ChatTemplate::ChatMl, messages), out);
    std::vector<int32_t> counted;
    for (size_t i = 0; i < out.ids.size(); ++i)
      if (out.ignored.at(i) == 0) counted.push_back(out.ids[i]);
    const auto answer = tokenizer->decode(tokenizer->encode("the king<|im_end|>"));
    std::string answers;
    for (int i = 0; i < 50; ++i) answers += answer;
    const auto letters = [](std::string text) {
      std::erase(text, ' ');
      return text;
    };
    EXPECT_EQ(letters(tokenizer->decode(counted)), letters(answers)) << name;
  }
}

TEST(DocumentEncoding, PutsNoSpaceInFrontOfACompletion) {
  const auto ids_of = [&](const std::string& name, const std::string& line) {
    const auto tokenizer = load_tokenizer(TRIVET_SOURCE_DIR "/tests/golden/tokenizers/" + name);
    const InputPiece piece{.path = "a.jsonl", .text = line, .lines = true};
    const EncodedText text = DocumentEncoder(tokenizer, {}).encode(piece);
    std::vector<std::string> names;
    for (size_t i = 0; i < text.ids.size(); ++i)
      names.push_back((text.ignored.at(i) == 0 ? "+" : "-") + tokenizer->token_name(text.ids[i]));
    return names;
  };
  EXPECT_THAT(ids_of("llama2_converted.json", R"({"prompt": "Q\n", "completion": "Z"})"),
              ElementsAre("-\u2581", "-<0x51>", "-<0x0A>", "+<0x5A>", "+</s>"));
  EXPECT_THAT(ids_of("bert_cased.json", R"({"prompt": "a", "completion": "b"})"), ElementsAre("-a", "+##b"));
  EXPECT_THAT(ids_of("llama2_converted.json", R"({"prompt": "hel", "completion": "lo"})"),
              ElementsAre("-\u2581", "-he", "-l", "+\u2581l", "+o", "+</s>"))
      << "the token ll would belong to both";
}

TEST(DocumentEncoding, EncodesNeighboursTogetherUnlessOneStandsApart) {
  const auto tokenizer = with_special({});
  const auto ids_of = [&](const Document& document) {
    EncodedText out;
    DocumentEncoder(tokenizer, {}).add(document, out);
    return out.ids;
  };
  const int32_t merged = tokenizer->encode("ab")[0], a = tokenizer->encode("a")[0], b = tokenizer->encode("b")[0];
  EXPECT_THAT(ids_of({{"a", true}, {"b", true}}), ElementsAre(merged));
  EXPECT_THAT(ids_of({{"a", true}, {"b", false}}), ElementsAre(merged)) << "as in one text";
  EXPECT_THAT(ids_of({{"a", true}, {.text = "b", .apart = true}}), ElementsAre(a, b));
  EXPECT_THAT(ids_of({{"a", false, true}, {"b", false}}), ElementsAre(merged))
      << "a token that the vocabulary does not have is text";
}

TEST(DocumentEncoding, CompletionsEndWithTheEndOfTextAndTextsIfAsked) {
  const auto tokenizer = with_special({});
  const int32_t end = tokenizer->special_id("<|endoftext|>");
  const InputPiece piece{
      .path = "a.jsonl", .text = "{\"prompt\": \"a\", \"completion\": \"b\"}\n\n{\"text\": \"ab\"}", .lines = true};
  const int32_t merged = tokenizer->encode("ab")[0], a = tokenizer->encode("a")[0], b = tokenizer->encode("b")[0];
  const EncodedText plain = DocumentEncoder(tokenizer, {}).encode(piece);
  EXPECT_THAT(plain.ids, ElementsAre(a, b, end, merged));
  EXPECT_THAT(plain.ignored, ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(plain.document_ends, ElementsAre(3, 4));
  const EncodedText ended = DocumentEncoder(tokenizer, {.end_of_each_text = true}).encode(piece);
  EXPECT_THAT(ended.ids, ElementsAre(a, b, end, merged, end));
  EXPECT_THAT(ended.document_ends, ElementsAre(3, 5));
  EXPECT_THAT(DocumentEncoder(bytes_tokenizer(), {}).encode(piece).ids, ElementsAre('a', 'b', 'a', 'b'));
}

TEST(JsonLines, SayTheFileAndTheLineThatIsWrong) {
  const DocumentEncoder encoder(bytes_tokenizer(), {});
  const auto refused = [&](const std::string& line, const std::string& message) {
    const InputPiece piece{.path = "a.jsonl", .text = "{\"text\": \"fine\"}\n" + line + "\n", .lines = true, .first_line = 10};
    expect_error([&] { encoder.encode(piece); }, ExitCode::Usage, "a.jsonl: line 11: " + message);
  };
  refused("[1]", "is a JSON array; it must be an object");
  refused("{\"a\": 1, \"b\": 2}", "has \"a\", \"b\"; it must have \"text\", \"prompt\" and \"completion\", or \"messages\"");
  refused("{}", "has nothing; it must have \"text\", \"prompt\" and \"completion\", or \"messages\"");
  refused("{\"text\": 5}", "\"text\" is number; it must be a string");
  refused("{\"prompt\": \"a\", \"completion\": null}",
          "has \"prompt\"; it must have \"text\", \"prompt\" and \"completion\", or \"messages\"");
  for (const std::string label : {"false", "0", "0.0", "-1", "\"false\"", "\"0\""})
    refused(
        "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": " + label + "}",
        "\"label\" " + label +
            " says that the answer is not wanted (KTO), which is not read, so it would be learned; leave such lines out, or "
            "write pairs with \"chosen\" and \"rejected\"");
  for (const std::string weight : {"0", "false", "\"0\"", "-1"})
    refused(
        "{\"text\": \"a\", \"weight\": " + weight + "}",
        "\"weight\" of a whole line is not read, so that what it keeps out would be learned; leave such lines out, or give the "
        "messages of a conversation a \"weight\"");
  refused("{\"messages\": []}",
          "has \"messages\", which need a chat template: \"chatml\", \"llama-2\" or \"llama-3\" (data.chat_template, or "
          "--chat-template of `trivet data prepare`)");
  refused("{\"messages\": [\"a\"]}", "\"messages\" is a list of texts; write each as an object with \"role\" and \"content\"");
  refused(std::string(100, '['), "is nested deeper than 64 levels");
  const auto chat = [&](const std::string& messages, const std::string& message) {
    expect_error([&] { documents_of_line("{\"messages\": " + messages + "}", {.chat_template = ChatTemplate::ChatMl}); },
                 ExitCode::Usage, message);
  };
  chat("5", "\"messages\" is number; it must be a list");
  const std::string pairs_of_keys =
      "a message must be an object with \"role\" and \"content\", or with \"from\" and \"value\" as ShareGPT has it";
  for (const char* key : {"role", "content"}) {
    const std::string other = std::string(key) == "role" ? "content" : "role";
    const std::string message =
        "a message has no \"" + std::string(key) + "\", or one that is null; give it one, or leave the message out";
    chat("[{\"" + other + "\": \"user\"}]", message);
    chat("[{\"" + other + "\": \"user\", \"" + key + "\": null}]", message);
  }
  chat("[{\"role\": \"user\", \"content\": \"a\"}, null]", "a message is null; leave it out, or the whole conversation");
  chat("[5]", pairs_of_keys);
  chat("[{\"role\": \"user\", \"content\": {}}]", "\"content\" is object; it must be a string, or a list of texts");
  chat("[{\"role\": \"user\", \"content\": [1]}]",
       "a part of \"content\" is number; only texts are read, as in {\"type\": \"text\", \"text\": \"...\"}");
}

}  // namespace
}  // namespace trivet::data
