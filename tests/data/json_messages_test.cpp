// What keys of lines of JSON mean: what is absent, what is masked, what is refused, and what is noted as not read.
#include "data/json_messages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/json_lines.h"
#include "tests/data/expect_error.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct ReadLine {
  std::string text, counted;
  std::vector<std::string> unread;
};

// The last document of the line: of a pair, the one that is rejected.
ReadLine read_line(const std::string& line, LineKind kind = LineKind::Text) {
  LineFacts facts;
  const Document document =
      documents_of_line(line, {.kind = kind, .chat_template = ChatTemplate::ChatMl, .end_of_text = "$"}, &facts).back();
  ReadLine read{.text = "", .counted = "", .unread = {facts.unread.begin(), facts.unread.end()}};
  for (const DocumentPart& part : document) {
    read.text += part.text;
    if (!part.ignored) read.counted += part.text;
  }
  return read;
}

std::string refusal(const std::string& line, LineKind kind = LineKind::Text) {
  try {
    read_line(line, kind);
    return "accepted";
  } catch (const DataError& error) {
    return error.what();
  }
}

const std::string kAsked = R"({"role": "user", "content": "q"})", kAnswered = R"({"role": "assistant", "content": "a"})";

std::string answer_with(const std::string& keys) {
  return fmt::format(R"({{"messages": [{}, {{"role": "assistant", "content": "a", {}}}]}})", kAsked, keys);
}
std::string conversation_with(const std::string& keys) {
  return fmt::format(R"({{"messages": [{}, {}], {}}})", kAsked, kAnswered, keys);
}
std::string pair_with(const std::string& keys) { return R"({"prompt": "q", "chosen": "b", "rejected": "c", )" + keys + "}"; }

TEST(KeysOfLines, OfPartsOfAContentAreReadOrTold) {
  const auto part_with = [](const std::string& keys) {
    return fmt::format(R"({{"messages": [{}, {{"role": "assistant", "content": [{{"type": "text", "text": "a"{}}}]}}]}})",
                       kAsked, keys);
  };
  EXPECT_EQ(read_line(part_with("")).text, read_line(answer_with(R"("name": null)")).text);
  EXPECT_THAT(read_line(part_with(R"(, "id": 3)")).unread, ElementsAre("\"messages.content.id\""));
  for (const char* keys : {R"(, "weight": 0)", R"(, "train": true)"})
    EXPECT_THAT(refusal(part_with(keys)), HasSubstr("which is read of whole messages alone")) << keys;
  EXPECT_THAT(refusal(part_with(R"(, "mask": 1)")), HasSubstr("a part of \"content\" has \"mask\""));
}

TEST(KeysOfLines, AnEmptyTextHidesNoConversation) {
  const std::string told = read_line(fmt::format(R"({{"messages": [{}, {}]}})", kAsked, kAnswered)).text;
  for (const char* keys : {R"("text": "")", R"("prompt": "", "completion": "")", R"("text": "", "conversations": [])"})
    EXPECT_EQ(read_line(conversation_with(keys)).text, told) << keys;
  const std::string shared = R"("conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}])";
  EXPECT_EQ(read_line(R"({"text": "", )" + shared + "}").text, told);
  EXPECT_EQ(read_line(R"({"messages": [], "prompt": "", "completion": "", )" + shared + "}").text, told);
}

TEST(KeysOfLines, ThatAreNullOrEmptyAreAbsent) {
  const std::string plain = read_line(R"({"text": "one two"})").text;
  for (const char* keys : {R"("messages": null, "prompt": null)", R"("messages": [], "prompt": null)",
                           R"("conversations": null, "prompt": "", "completion": null)", R"("prompt": "", "completion": "")",
                           R"("messages": "", "conversations": [])", R"("images": [null], "id": null)"}) {
    const ReadLine read = read_line(fmt::format(R"({{"text": "one two", {}}})", keys));
    EXPECT_EQ(read.text, plain) << keys;
    EXPECT_THAT(read.unread, IsEmpty()) << keys;
  }
  const std::string talk = read_line(conversation_with(R"("id": null)")).text;
  for (const char* keys :
       {R"("text": null, "prompt": null, "completion": null)", R"("tools": [])", R"("tools": "[]")", R"("tools": "")",
        R"("images": [], "audios": [null], "videos": null)", R"("tools": [{"function": null}])", R"("system": "")"}) {
    const ReadLine read = read_line(conversation_with(keys));
    EXPECT_EQ(read.text, talk) << keys;
    EXPECT_THAT(read.unread, IsEmpty()) << keys;
  }
  for (const char* keys :
       {R"("tool_calls": [])", R"("tool_calls": null)", R"("function_call": {"name": null, "arguments": null})",
        R"("reasoning_content": "")", R"("thinking": null)", R"("images": [])", R"("name": null)", R"("weight": null)"}) {
    const ReadLine read = read_line(answer_with(keys));
    EXPECT_EQ(read.text, talk) << keys;
    EXPECT_EQ(read.counted, "a<|im_end|>") << keys;
    EXPECT_THAT(read.unread, IsEmpty()) << keys;
  }
  EXPECT_EQ(read_line(pair_with(R"("images": null, "tools": [], "messages": null)"), LineKind::Pair).text, "qc$");
}

TEST(KeysOfLines, SayWhichAnswersTheLossCounts) {
  for (const char* zero :
       {R"("weight": 0)", R"("weight": 0.0)", R"("train": false)", R"("training": false)", R"("loss": false)",
        R"("loss_mask": 0)", R"("compute_loss": false)", R"("trainable": false)", R"("weight": 0, "train": false)"}) {
    EXPECT_EQ(read_line(answer_with(zero)).counted, "") << zero;
    EXPECT_THAT(read_line(answer_with(zero)).unread, IsEmpty()) << zero;
  }
  for (const char* one : {R"("weight": 1)", R"("weight": 1.0)", R"("train": true)", R"("loss": true, "weight": 1)"})
    EXPECT_EQ(read_line(answer_with(one)).counted, "a<|im_end|>") << one;
  EXPECT_EQ(
      refusal(answer_with(R"("weight": 0.5)")),
      "\"weight\" of a message is 0.5; use 1 or true if the loss is to count what the assistant says there, 0 or false if "
      "not");
  for (const char* wrong : {R"("weight": -1)", R"("weight": 2)", R"("train": "yes")", R"("loss": [1])"})
    EXPECT_THAT(refusal(answer_with(wrong)), HasSubstr("use 1 or true if")) << wrong;
  EXPECT_THAT(refusal(answer_with(R"("weight": 0, "train": true)")), HasSubstr("contradicts another key"));
  const ReadLine of_user =
      read_line(fmt::format(R"({{"messages": [{{"role": "user", "content": "q", "weight": 1}}, {}]}})", kAnswered));
  EXPECT_EQ(of_user.counted, "a<|im_end|>");
  EXPECT_THAT(of_user.unread, ElementsAre("\"messages.weight\" of \"user\""));
}

TEST(KeysOfLines, ThatWouldChangeWhatIsLearnedAreRefused) {
  EXPECT_EQ(
      refusal(answer_with(R"("tool_calls": [{"id": "1"}])")),
      "a message has \"tool_calls\", for which no chat template here has a place; write it into a text, or leave the key out "
      "to train without it");
  for (const char* keys :
       {R"("function_call": {"name": "f", "arguments": "{}"})", R"("reasoning_content": "hm")", R"("thinking": "hm")",
        R"("reasoning": "hm")", R"("images": ["a.png"])", R"("audio": {"path": "a"})", R"("mask": 1)", R"("masked": true)",
        R"("ignore": true)", R"("skip": 1)", R"("train_detail": [{"begin_offset": 0}])"})
    EXPECT_THAT(refusal(answer_with(keys)), HasSubstr("a message has \"")) << keys;
  const std::string prompted = R"({"prompt": "q", "completion": "a", )";
  for (const char* keys :
       {R"("tools": [{"type": "function"}])", R"("tools": "[{\"type\": \"function\"}]")", R"("functions": [{"name": "f"}])",
        R"("images": ["a.png"])", R"("image": "a.png")", R"("audios": [1])", R"("videos": [1])", R"("system": "Be brief.")",
        R"("system_prompt": "Be brief.")", R"("loss_mask": [0, 1])", R"("completion_mask": [0, 1])"}) {
    EXPECT_THAT(refusal(conversation_with(keys)), HasSubstr("has \"")) << keys;
    EXPECT_THAT(refusal(prompted + keys + "}"), HasSubstr("has \"")) << keys;
    EXPECT_THAT(refusal(pair_with(keys), LineKind::Pair), HasSubstr("has \"")) << keys;
    EXPECT_THAT(read_line(fmt::format(R"({{"text": "x", {}}})", keys)).unread, testing::SizeIs(1)) << "a text has no answer";
  }
  for (const char* keys : {R"("weight": 0)", R"("weight": 0.0)", R"("train": false)", R"("trainable": false)"}) {
    for (const std::string& line :
         {conversation_with(keys), prompted + keys + "}", fmt::format(R"({{"text": "x", {}}})", keys)})
      EXPECT_THAT(refusal(line), HasSubstr("of a whole line is not read, so that what it keeps out would be learned")) << line;
    EXPECT_THAT(refusal(pair_with(keys), LineKind::Pair), HasSubstr("of a whole line is not read")) << keys;
  }
}

TEST(KeysOfLines, ThatAreNotReadAreNoted) {
  EXPECT_THAT(read_line(R"({"text": "x", "id": 7, "meta": {"url": "u"}, "none": null, "no": false})").unread,
              ElementsAre("\"id\"", "\"meta\"", "\"no\""));
  EXPECT_THAT(read_line(conversation_with(R"("train": true, "meta": {"keep": false}, "images": [])")).unread,
              ElementsAre("\"meta\"", "\"train\""));
  EXPECT_THAT(read_line(conversation_with(R"("prompt": "q", "source": "s")")).unread, ElementsAre("\"prompt\"", "\"source\""));
  EXPECT_THAT(read_line(answer_with(R"("name": "Ann")")).unread, ElementsAre("\"messages.name\""));
  EXPECT_THAT(read_line(pair_with(R"("score_chosen": 5)"), LineKind::Pair).unread, ElementsAre("\"score_chosen\""));
  LineFacts facts;
  for (int i = 0; i < 100; ++i) facts.add_unread(fmt::format("k{:02}", 99 - i));
  EXPECT_EQ(facts.unread.size(), LineFacts::kMostKeys);
  EXPECT_EQ(*facts.unread.begin(), "k00");
  EXPECT_THAT(facts.sentences(), ElementsAre(HasSubstr("k19 and more")));
}

TEST(KeysOfLines, MayHoldNoNulInATextWhichIsRefusedInAFileToo) {
  const std::string nul = R"("a\u0000b")", refused = "\" holds NUL (\\u0000), so it is no text";
  const auto message = [&](const std::string& role, const std::string& content) {
    return fmt::format(R"({{"messages": [{{"role": {}, "content": {}}}, {}]}})", role, content, kAnswered);
  };
  for (const auto& [line, key] : std::vector<std::pair<std::string, std::string>>{
           {"{\"text\": " + nul + "}", "text"},
           {"{\"prompt\": " + nul + ", \"completion\": \"c\"}", "prompt"},
           {"{\"prompt\": \"p\", \"completion\": " + nul + "}", "completion"},
           {message("\"user\"", nul), "content"},
           {message("\"user\"", "[" + nul + "]"), "content"},
           {message("\"user\"", "[{\"type\": \"text\", \"text\": " + nul + "}]"), "text"},
           {message(nul, "\"q\""), "role"},
           {"{\"conversations\": [{\"from\": \"human\", \"value\": " + nul + "}, {\"from\": \"gpt\", \"value\": \"a\"}]}",
            "value"}})
    EXPECT_THAT(refusal(line), HasSubstr("\"" + key + refused)) << line;
  for (const std::string key : {"prompt", "chosen", "rejected"}) {
    std::string line = R"({"prompt": "x", "chosen": "y", "rejected": "z"})";
    const size_t at = line.find("\"" + key + "\": ") + key.size() + 4;
    EXPECT_THAT(refusal(line.replace(at, 3, nul), LineKind::Pair), HasSubstr("\"" + key + refused));
  }
  EXPECT_EQ(refusal(R"({"text": "a\u0001b", "id": "a\u0000b"})"), "accepted") << "what is not read may hold anything";
}

TEST(KeysOfLines, ThatAreGivenTwiceAreRefused) {
  const std::pair<std::string, std::string> cases[]{{R"({"text": "a", "text": "b"})", "text"},
                                                    {R"({"text": "a", "meta": {"id": 1, "x": "\":", "id": 1}})", "id"},
                                                    {R"({"text": "a", "list": [{"k": 1}, {"k": null, "k": 2}]})", "k"},
                                                    {conversation_with(R"("messages": [])"), "messages"},
                                                    {answer_with(R"("content": "again")"), "content"}};
  for (const auto& [line, key] : cases)
    EXPECT_EQ(refusal(line), fmt::format("has the key \"{}\" twice; leave one of them out", key)) << line;
  EXPECT_EQ(read_line(R"({"text": "a: \"text\": b", "m": [{"k": 1}, {"k": {"k": ":"}}]})").text, "a: \"text\": b");
}

TEST(Messages, HaveContentsInParts) {
  const auto content = [](const std::string& parts) {
    return fmt::format(R"({{"messages": [{{"role": "assistant", "content": {}}}]}})", parts);
  };
  EXPECT_EQ(
      read_line(content(R"([{"type": "text", "text": "a", "image_url": null}, {"type": "text", "text": "b"}, "c"])")).counted,
      "abc<|im_end|>");
  EXPECT_THAT(refusal(content(R"([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}])")),
              HasSubstr("a part of \"content\" is of the type \"image_url\"; only texts are read"));
  for (const char* part :
       {R"({"type": "text", "text": null})", R"({"type": "text"})", R"({})", R"({"type": "text", "content": "a"})"})
    EXPECT_THAT(refusal(content(std::string("[") + part + "]")),
                HasSubstr("a part of \"content\" has no \"text\", or one that is null"))
        << part;
  for (const char* parts : {R"([{"type": "image"}])", R"([{"type": "input_audio", "text": "a"}])", R"([{"type": "text"}])",
                            R"([{"type": "text", "text": "a", "image": "u"}])"})
    EXPECT_THAT(refusal(content(parts)), HasSubstr("a part of \"content\" ")) << parts;
}

TEST(Messages, MayBeThoseOfShareGpt) {
  const std::string talk = read_line(conversation_with(R"("id": null)")).text;
  for (const char* answerer : {"gpt", "assistant", "chatgpt", "model"})
    EXPECT_EQ(
        read_line(fmt::format(R"({{"conversations": [{{"from": "human", "value": "q"}}, {{"from": "{}", "value": "a"}}]}})",
                              answerer))
            .text,
        talk);
  EXPECT_EQ(read_line(fmt::format(R"({{"conversations": [{}, {}]}})", kAsked, kAnswered)).text, talk);
  EXPECT_EQ(
      read_line(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "gpt", "value": "a", "weight": 0}]})").counted,
      "");
  EXPECT_THAT(refusal(R"({"conversations": [{"from": "function_call", "value": "f"}]})"),
              HasSubstr("the role \"function_call\""));
  EXPECT_EQ(read_line(fmt::format(R"({{"conversations": [{}], "text": "kept"}})", kAsked)).text, "kept");
}

// As TRL's SFTTrainer: the loss counts all that follows the prompt and the beginning of the answer.
TEST(PromptAndCompletion, MayBeListsOfMessages) {
  const auto line = [](const std::string& prompt, const std::string& completion) {
    return fmt::format(R"({{"prompt": [{}], "completion": [{}]}})", prompt, completion);
  };
  const ReadLine read = read_line(line(kAsked, kAnswered));
  EXPECT_EQ(read.text, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
  EXPECT_EQ(read.counted, "a<|im_end|>\n");
  EXPECT_EQ(read_line(line(kAsked + "," + kAnswered + "," + kAsked, kAnswered)).counted, "a<|im_end|>\n")
      << "answers in the prompt are not counted";
  const std::string further = kAnswered + "," + kAsked + R"(, {"role": "assistant", "content": "b")";
  EXPECT_EQ(read_line(line(kAsked, further + "}")).counted,
            "a<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
  EXPECT_EQ(read_line(line(kAsked, further + R"(, "weight": 0})")).counted, "a<|im_end|>\n<|im_start|>user\nq<|im_end|>\n");
  EXPECT_EQ(read_line(line("", kAnswered)).counted, "a<|im_end|>\n");
  EXPECT_EQ(refusal(line(kAsked, kAsked)), "\"completion\" must begin with a message of \"assistant\"");
  EXPECT_EQ(refusal(line(kAsked, "")), "\"completion\" must begin with a message of \"assistant\"");
  for (const char* mixed : {R"({"prompt": "q", "completion": [{"role": "assistant", "content": "a"}]})",
                            R"({"prompt": [{"role": "user", "content": "q"}], "completion": "a"})"})
    EXPECT_EQ(refusal(mixed), "\"prompt\" and \"completion\" must both be texts, or both lists of messages");
}

TEST(PairsOfConversations, NeedAnAnswerThatTheLossCounts) {
  const auto line = [](const std::string& keys) {
    return fmt::format(R"({{"chosen": [{0}, {1}], "rejected": [{0}, {{"role": "assistant", "content": "b"{2}}}]}})", kAsked,
                       kAnswered, keys);
  };
  EXPECT_EQ(read_line(line(R"(, "weight": 1)"), LineKind::Pair).counted, "b<|im_end|>");
  EXPECT_EQ(refusal(line(R"(, "weight": 0)"), LineKind::Pair),
            "\"rejected\" has no message of the assistant that the loss counts; give one the weight 1");
}

TEST(KeysOfLines, OfALineOfNullsAreNothing) {
  EXPECT_EQ(refusal(R"({"text": null, "messages": null})"),
            "has nothing; it must have \"text\", \"prompt\" and \"completion\", or \"messages\"");
}

}  // namespace
}  // namespace trivet::data
