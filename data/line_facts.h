// Counts what training does not use of texts and lines of JSON: keys that are not read, documents that the loss learns nothing
// from, and names of special tokens that are read as letters.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trivet::data {

struct LineFacts {
  static constexpr size_t kMostKeys = 20;

  std::set<std::string> unread;  // keys that hold something: "id", "messages.name"; the first ones, if there are many
  bool more_unread = false;
  int64_t documents = 0, without_targets = 0;
  int64_t conversations = 0;   // lists of messages
  int64_t without_prompt = 0;  // pairs of answers that nothing precedes
  // The number of times that texts name a special token, and whether it ends a document where it is read as a token.
  struct Mark {
    int64_t times = 0;
    bool ends_document = false;
  };
  std::map<std::string, Mark> marks;
  std::map<std::string, int64_t> begun_twice;  // how many texts begin with the token that the tokenizer puts before each

  void add_unread(std::string key);
  void add_mark(const std::string& name, const Mark& mark);
  void add(const LineFacts& more);
  // Describes the facts for people; empty if there is nothing to tell.
  std::vector<std::string> sentences() const;
};

}  // namespace trivet::data
