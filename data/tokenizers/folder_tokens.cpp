#include "data/tokenizers/folder_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/tokenizers/role_file.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::array kNamedTokens{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
constexpr std::array kListsOfTokens{"additional_special_tokens", "extra_special_tokens"};
constexpr std::array kFlags{"single_word", "lstrip", "rstrip", "normalized", "special"};
constexpr const char* kAdvice =
    "save the tokenizer anew: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) in Python";

// A token as a member of "added_tokens" of a tokenizer.json, without its id.
OrderedJson token_with_flags(const std::string& content, const Json& flags, bool special) {
  special = special || (flags.is_object() && flags.value("special", false));
  OrderedJson token{{"content", content}, {"single_word", false},   {"lstrip", false},
                    {"rstrip", false},    {"normalized", !special}, {"special", special}};
  for (const char* flag : kFlags)
    if (flags.is_object() && flags.contains(flag) && flag != std::string_view("special"))
      token[flag] = flags.at(flag).get<bool>();
  return token;
}

struct FolderToken {
  OrderedJson token;
  std::string place;  // "added_tokens.json", for errors
  int64_t id = -1;    // -1: the folder gives it none
};

// The tokens of the folder in the order in which they get their ids.
class FolderTokens {
 public:
  explicit FolderTokens(const std::string& folder)
      : config_(read_role_file(folder + "/tokenizer_config.json")), map_(read_role_file(folder + "/special_tokens_map.json")) {
    const bool has_decoder = config_.contains("added_tokens_decoder") && !config_.at("added_tokens_decoder").is_null();
    if (has_decoder) map_ = Json::object();  // an older file, which transformers reads only where the newer one says nothing
    for (const Json* file : {&config_, &map_})
      for (const char* key : kNamedTokens)
        if (file->contains(key)) named_.insert(token_content(file->at(key)));
    for (const Json* file : {&config_, &map_})
      for (const char* key : kListsOfTokens)
        if (file->contains(key)) add_list(file->at(key));
    if (has_decoder)
      read_decoder(config_.at("added_tokens_decoder"), folder + "/tokenizer_config.json");
    else
      read_encoder(read_role_file(folder + "/added_tokens.json"), folder + "/added_tokens.json");
  }

  std::vector<FolderToken> take() {
    std::vector<FolderToken> tokens;
    for (auto& [id, token] : with_ids_) tokens.push_back(std::move(token));
    for (const Json& token : lists_)
      tokens.push_back({token_with_flags(token_content(token), token, true), "the list of extra special tokens", -1});
    return tokens;
  }

 private:
  void add_list(const Json& list) {
    if (!list.is_structured()) return;
    for (const Json& entry : list)  // also the values of an object, which names them
      if (const std::string content = token_content(entry); !content.empty() && !named_.contains(content))
        if (!is_listed(content)) lists_.push_back(entry);
  }

  bool is_listed(const std::string& content) const {
    return std::ranges::any_of(lists_, [&](const Json& token) { return token_content(token) == content; });
  }

  void read_decoder(const Json& decoder, const std::string& path) {
    if (!decoder.is_object()) bad_file(path, "added_tokens_decoder: is no object of ids and tokens");
    for (const auto& [key, token] : decoder.items()) {
      const std::string content = token_content(token);
      const bool is_id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      if (!is_id || content.empty())
        bad_file(path, fmt::format("added_tokens_decoder: \"{}\": {} is no id with a token", printable(key, 60),
                                   printable(token.dump(), 60)));
      for (const char* flag : kFlags)
        if (token.is_object() && token.contains(flag) && !token.at(flag).is_boolean())
          bad_file(path, fmt::format("added_tokens_decoder: \"{}\": {} must be true or false", key, flag));
      with_ids_[std::stoll(key)] = {token_with_flags(content, token, named_.contains(content)),
                                    "added_tokens_decoder of tokenizer_config.json", std::stoll(key)};
    }
  }

  void read_encoder(const Json& encoder, const std::string& path) {
    for (const auto& [content, id] : encoder.items()) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX || content.empty())
        bad_file(path, fmt::format("\"{}\": {} is no token with an id", printable(content, 60), printable(id.dump(), 60)));
      const bool special = named_.contains(content) || is_listed(content);
      with_ids_[id.get<int64_t>()] = {token_with_flags(content, nullptr, special), "added_tokens.json", id.get<int64_t>()};
    }
  }

  Json config_, map_;
  std::set<std::string> named_;
  std::vector<Json> lists_;
  std::map<int64_t, FolderToken> with_ids_;
};

bool has_flags_of(const Json& there, const OrderedJson& token) {
  return std::ranges::all_of(kFlags, [&](const char* flag) {
    const bool otherwise = flag == std::string_view("normalized") && !there.value("special", false);
    return there.value(flag, otherwise) == token.at(flag).get<bool>();
  });
}

// Checks whether a tokenizer.json has these added tokens with these settings. Its vocabulary, which may be long, is not kept.
bool all_are_in(const std::string& text, const std::vector<FolderToken>& tokens) {
  const Json json = Json::parse(text, [](int depth, Json::parse_event_t event, Json& key) {
    return !(depth == 1 && event == Json::parse_event_t::key && key == "model");
  });
  std::map<std::string, const Json*> added;
  if (json.contains("added_tokens"))
    for (const Json& token : json.at("added_tokens"))
      if (token.is_object()) added.emplace(token_content(token), &token);
  return std::ranges::all_of(tokens, [&](const FolderToken& from) {
    const auto found = added.find(from.token.at("content").get<std::string>());
    return found != added.end() && (from.id < 0 || has_flags_of(*found->second, from.token));
  });
}

// The vocabulary and the added tokens of a tokenizer.json, whose content is checked where it is read.
class JsonTokens {
 public:
  explicit JsonTokens(OrderedJson& json) : added_(json["added_tokens"]), vocabulary_(json["model"]["vocab"]) {
    if (added_.is_null()) added_ = OrderedJson::array();
    for (size_t i = 0; i < vocabulary_.size() && vocabulary_.is_array(); ++i)
      if (vocabulary_[i].is_array() && !vocabulary_[i].empty() && vocabulary_[i][0].is_string())
        unigram_.emplace(vocabulary_[i][0].get<std::string>(), static_cast<int64_t>(i));
    for (size_t i = 0; i < added_.size(); ++i)
      if (added_[i].is_object()) places_.emplace(token_content(Json(added_[i])), i);
  }

  bool has(const std::string& content) const { return places_.contains(content); }
  void update(const OrderedJson& token) {
    OrderedJson& there = added_[places_.at(token.at("content").get<std::string>())];
    for (const char* flag : kFlags) there[flag] = token.at(flag);
  }

  int64_t next_id(const std::string& content) const {
    if (const int64_t id = id_in_vocabulary(content); id >= 0) return id;
    const auto size = static_cast<int64_t>(vocabulary_.size());
    int64_t last = -1;
    for (const OrderedJson& token : added_)
      if (token.is_object() && token.contains("id") && token.at("id").is_number_integer())
        last = std::max(last, token.at("id").get<int64_t>());
    return std::max(size, last + 1);
  }
  bool in_vocabulary(const std::string& content) const { return id_in_vocabulary(content) >= 0; }

  void add(OrderedJson token, int64_t id) {
    places_.emplace(token.at("content").get<std::string>(), added_.size());
    OrderedJson entry{{"id", id}};
    entry.update(token);
    added_.push_back(std::move(entry));
  }

 private:
  int64_t id_in_vocabulary(const std::string& content) const {
    if (vocabulary_.is_array()) {
      const auto found = unigram_.find(content);
      return found == unigram_.end() ? -1 : found->second;
    }
    const auto found = vocabulary_.find(content);
    return found != vocabulary_.end() && found->is_number_unsigned() ? found->get<int64_t>() : -1;
  }

  OrderedJson &added_, &vocabulary_;
  std::map<std::string, int64_t> unigram_;
  std::map<std::string, size_t> places_;
};

}  // namespace

std::string with_folder_tokens(const std::string& text, const std::string& folder, const std::string& file) try {
  std::vector<FolderToken> tokens = FolderTokens(folder).take();
  if (tokens.empty() || all_are_in(text, tokens)) return text;
  OrderedJson json = OrderedJson::parse(text);
  if (!json.contains("model")) return text;
  JsonTokens all(json);
  for (FolderToken& from : tokens) {
    const std::string content = from.token.at("content").get<std::string>();
    if (all.has(content)) {
      if (from.id >= 0) all.update(from.token);
      continue;
    }
    const int64_t id = all.next_id(content);
    if (from.id >= 0 && from.id != id && !all.in_vocabulary(content))
      bad_file(file, fmt::format("has no token \"{}\", to which {} gives the id {}; its next free id is {}; write "
                                 "that, or {}",
                                 printable(content), from.place, from.id, id, kAdvice));
    all.add(std::move(from.token), id);
  }
  return json.dump();
} catch (const Json::exception&) {
  return text;  // whoever reads it says what is wrong with it
}

void refuse_folder_tokens(const Tokenizer& tokenizer, const std::string& folder, const std::string& file) {
  std::set<std::string> missing;
  std::vector<FolderToken> tokens = FolderTokens(folder).take();
  for (const FolderToken& from : tokens) missing.insert(from.token.at("content").get<std::string>());
  for (int32_t id = 0; id < tokenizer.vocabulary_size() && !missing.empty(); ++id) missing.erase(tokenizer.token_name(id));
  for (const FolderToken& from : tokens)
    if (const std::string content = from.token.at("content").get<std::string>(); missing.contains(content))
      bad_file(file, fmt::format("has no token \"{}\", which {} adds to it; {}", printable(content), from.place, kAdvice));
}

}  // namespace trivet::data
