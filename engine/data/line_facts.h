// What lines of JSON have that training does not use: keys that are not read, and documents that the loss learns nothing from.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace trivet::data {

struct LineFacts {
  static constexpr size_t kMostKeys = 20;

  std::set<std::string> unread;  // keys that hold something: "id", "messages.name"; the first ones, if there are many
  bool more_unread = false;
  int64_t documents = 0, without_targets = 0;

  void add_unread(std::string key);
  void add(const LineFacts& more);
  // For people; empty if there is nothing to tell.
  std::vector<std::string> sentences() const;
};

}  // namespace trivet::data
