#include "data/line_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

namespace trivet::data {

void LineFacts::add_unread(std::string key) {
  unread.insert(std::move(key));
  if (unread.size() <= kMostKeys) return;
  unread.erase(std::prev(unread.end()));
  more_unread = true;
}

void LineFacts::add_mark(const std::string& name, const Mark& mark) {
  if (mark.times == 0) return;
  marks[name].times += mark.times;
  marks[name].ends_document = mark.ends_document;
}

void LineFacts::add(const LineFacts& more) {
  for (const std::string& key : more.unread) add_unread(key);
  more_unread = more_unread || more.more_unread;
  documents += more.documents;
  without_targets += more.without_targets;
  conversations += more.conversations;
  without_prompt += more.without_prompt;
  for (const auto& [name, mark] : more.marks) add_mark(name, mark);
  for (const auto& [name, texts] : more.begun_twice) begun_twice[name] += texts;
}

std::vector<std::string> LineFacts::sentences() const {
  std::vector<std::string> all;
  if (!unread.empty())
    all.push_back(
        fmt::format("these keys of the lines are not read: {}{}", fmt::join(unread, ", "), more_unread ? " and more" : ""));
  if (without_targets > 0)
    all.push_back(
        fmt::format("{} of {} documents have no token that the loss counts, because they have no answer, an empty one, or only "
                    "answers of weight 0; nothing is learned from them, unless data.loss_on is \"all\"",
                    without_targets, documents));
  if (without_prompt > 0)
    all.push_back(
        fmt::format("{} no prompt: nothing precedes what is compared",
                    without_prompt == 1 ? "1 pair of answers has" : fmt::format("{} pairs of answers have", without_prompt)));
  for (const auto& [name, mark] : marks)
    all.push_back(
        fmt::format("the text has {} {}, read as the letters that it is made of; to read special tokens as tokens, set "
                    "data.special_tokens (--special-tokens of `trivet data prepare`){}",
                    name, mark.times == 1 ? "once" : fmt::format("{} times", mark.times),
                    mark.ends_document ? ": in a file of plain text, this one then ends a document" : ""));
  for (const auto& [name, texts] : begun_twice)
    all.push_back(
        fmt::format("{} with {}, which the tokenizer puts before each text, too, so that it is there twice; leave it "
                    "out of the texts",
                    texts == 1 ? "1 text begins" : fmt::format("{} texts begin", texts), name));
  return all;
}

}  // namespace trivet::data
