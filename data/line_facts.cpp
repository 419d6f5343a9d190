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

void LineFacts::add_mark(const std::string& name, int64_t times) {
  if (times > 0) marks[name] += times;
}

void LineFacts::add(const LineFacts& more) {
  for (const std::string& key : more.unread) add_unread(key);
  more_unread = more_unread || more.more_unread;
  documents += more.documents;
  without_targets += more.without_targets;
  conversations += more.conversations;
  without_prompt += more.without_prompt;
  for (const auto& [name, times] : more.marks) add_mark(name, times);
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
  for (const auto& [name, times] : marks)
    all.push_back(fmt::format(
        "the text has {} {}, read as the letters that it is made of; to read special tokens as tokens, set "
        "data.special_tokens (--special-tokens of `trivet data prepare`): in a file of plain text, this one then ends "
        "a document",
        name, times == 1 ? "once" : fmt::format("{} times", times)));
  return all;
}

}  // namespace trivet::data
