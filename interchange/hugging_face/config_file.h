// Reads a model's config.json key by key, so that no key is overlooked: what nobody asked for is told or refused by name.
//
// null is the same as a key that is absent, except for is_null. Errors are ConfigErrors that name the file and the key.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/strict_json.h"

namespace trivet::hugging_face {

using checkpoint::Json;

class ConfigFile {
 public:
  // Reads the whole file, or an object in it, whose key then precedes names: "rope_scaling.".
  ConfigFile(const Json& object, std::string path, std::string prefix = "");

  bool has(const std::string& key) const;
  // Checks whether the key is there and null, which for some keys means something else than their default.
  bool is_null(const std::string& key);
  // Read a key; without a fallback it is required.
  int64_t count(const std::string& key, std::optional<int64_t> fallback = {});
  int64_t size(const std::string& key, std::optional<int64_t> fallback = {});  // at least 1
  double number(const std::string& key, std::optional<double> fallback = {});
  bool flag(const std::string& key, bool fallback);
  std::string text(const std::string& key, std::optional<std::string> fallback = {});
  // A list of strings; absent: empty.
  std::vector<std::string> texts(const std::string& key);
  // A list of integers, at least 0; absent: empty.
  std::vector<int64_t> counts(const std::string& key);
  // A list of numbers greater than 0; required.
  std::vector<double> positive_numbers(const std::string& key);
  // An object; null: absent.
  std::optional<ConfigFile> object(const std::string& key);
  // Takes note of a key without reading it: another one says the same, or it changes no results.
  void ignore(std::initializer_list<std::string_view> keys);
  // Keeps a sentence for the user, on a value that is read but not used.
  void note(std::string sentence) { notes_.push_back(std::move(sentence)); }
  const std::vector<std::string>& notes() const { return notes_; }
  // Refuses a value.
  [[noreturn]] void refuse(const std::string& key, const std::string& accepted) const;
  void require(bool holds, const std::string& key, const std::string& accepted) const {
    if (!holds) refuse(key, accepted);
  }
  // Refuses a key if `other_key` of `other`, an object in the same file, says something else; and each key of both objects
  // whose values differ. Versions of transformers differ in which one they take.
  void require_same(const std::string& key, const ConfigFile& other, const std::string& other_key) const;
  void require_agreement(const ConfigFile& other) const;
  // The keys that were neither read nor ignored, unless they are off; also those of `object`s that were handed to leave_unread.
  std::vector<std::string> unread() const;
  void leave_unread(const ConfigFile& object);
  // Checks whether the key is there and this number; the key counts as unread.
  bool is(const std::string& key, double number) const;
  // Checks whether a key switches a feature off: null, false or empty.
  bool is_off(const std::string& key) const;
  // Refuses these keys.
  void finish() const;

 private:
  const Json* find(const std::string& key);
  const Json* value_of(const std::string& key) const;

  const Json& object_;
  std::string path_, prefix_;
  std::set<std::string> seen_;
  std::vector<std::string> unread_;  // unread keys of objects in the file
  std::vector<std::string> notes_;
};

}  // namespace trivet::hugging_face
