#include "data/tokenizers/of_model.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/tokenizers/role_file.h"

namespace trivet::data {
namespace {

constexpr std::array kFilesWithNames{"tokenizer_config.json", "special_tokens_map.json"};
constexpr std::array kFilesWithIds{"generation_config.json", "config.json"};

class TokenizerOfModel final : public Tokenizer {
 public:
  TokenizerOfModel(std::shared_ptr<Tokenizer> inner, TokenRoles roles)
      : inner_(std::move(inner)),
        roles_(std::move(roles)),
        end_(id_of(*inner_, roles_.end_of_text)),
        begin_(id_of(*inner_, roles_.begin_of_text)) {}

  static int32_t id_of(const Tokenizer& tokenizer, std::string_view name) {
    if (name.empty()) return -1;
    if (const int32_t id = tokenizer.special_id(name); id >= 0) return id;
    for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      if (tokenizer.token_name(id) == name) return id;
    return -1;
  }

  std::string name() const override { return inner_->name(); }
  int64_t vocabulary_size() const override { return inner_->vocabulary_size(); }
  std::vector<int32_t> encode(std::string_view text) const override { return inner_->encode(text); }
  std::vector<int32_t> encode_with_special(std::string_view text) const override { return inner_->encode_with_special(text); }
  std::vector<int32_t> encode_part(std::string_view text, const TextToEncode& how) const override {
    return inner_->encode_part(text, how);
  }
  bool names_in_byte_alphabet() const override { return inner_->names_in_byte_alphabet(); }
  std::string decode(std::span<const int32_t> ids) const override { return inner_->decode(ids); }
  std::string to_text() const override {
    return nlohmann::ordered_json{{"trivet_tokenizer", std::string(kOfModel)},
                                  {"end_of_text", roles_.end_of_text},
                                  {"begin_of_text", roles_.begin_of_text},
                                  {"tokenizer", inner_->to_text()}}
               .dump() +
           "\n";
  }
  int32_t special_id(std::string_view name) const override {
    if (end_ >= 0 && name == roles_.end_of_text) return end_;
    if (begin_ >= 0 && name == roles_.begin_of_text) return begin_;
    return inner_->special_id(name);
  }
  SpecialFrame frame() const override { return inner_->frame(); }
  size_t piece_bytes(std::string_view text, size_t limit) const override { return inner_->piece_bytes(text, limit); }
  std::string token_name(int32_t id) const override { return inner_->token_name(id); }
  bool has_token(int32_t id) const override { return inner_->has_token(id); }
  std::string end_of_text() const override { return roles_.end_of_text; }
  std::string begin_of_text() const override { return roles_.begin_of_text; }

 private:
  std::shared_ptr<Tokenizer> inner_;
  TokenRoles roles_;
  int32_t end_, begin_;
};

// Reads config.json, which may also be a file of something else, such as a config of Trivet.
nlohmann::json read_if_of_model(const std::string& path) {
  try {
    return read_role_file(path);
  } catch (const DataError&) {
    return nlohmann::json::object();
  }
}

// "" if the file names no token.
std::string named_token(const nlohmann::json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return "";
  const nlohmann::json& value = found->is_object() && found->contains("content") ? found->at("content") : *found;
  if (!value.is_string()) bad_file(path, fmt::format("{}: is {}; use the text of a token", key, value.type_name()));
  return value.get<std::string>();
}

struct TokenOfIds {
  std::string name;     // name of the first id that has a token; "" if there is none
  std::string unknown;  // the ids, if there are some and the tokenizer has a token for none
};

TokenOfIds token_with_id(const nlohmann::json& json, const std::string& key, const Tokenizer& tokenizer,
                         const std::string& path) {
  TokenOfIds token;
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return token;
  const nlohmann::json ids = found->is_array() ? *found : nlohmann::json::array({*found});
  for (const nlohmann::json& id : ids)
    if (!id.is_null() && !id.is_number_integer())
      bad_file(path, fmt::format("{}: {} is no id of a token; use a whole number, a list of them, or null", key,
                                 printable(id.dump(), 60)));
  for (const nlohmann::json& id : ids) {
    if (!id.is_number_unsigned()) continue;  // null and -1 stand for no token
    if (id.get<uint64_t>() < static_cast<uint64_t>(tokenizer.vocabulary_size()))
      if (std::string name = tokenizer.token_name(id.get<int32_t>()); !name.empty()) return {std::move(name), ""};
    token.unknown += (token.unknown.empty() ? "" : ", ") + id.dump();
  }
  return token;
}

// An id of config.json may be the default of its program, which nobody chose (note_on_end_of_text).
void refuse_unknown_end(const std::string& ids, const std::string& folder, const std::string& tokenizer_path) {
  if (ids.empty()) return;
  bad_file(folder + "/" + kFilesWithIds[0],
           fmt::format("eos_token_id: {} has no token for {}; name the id of a token, or remove the key", tokenizer_path,
                       printable(ids)));
}

struct RoleFiles {
  std::array<nlohmann::json, 2> with_names, with_ids;
};

std::string role(const RoleFiles& files, const std::string& folder, const std::string& key, const Tokenizer& tokenizer,
                 const std::string& tokenizer_path) {
  for (size_t i = 0; i < kFilesWithNames.size(); ++i) {
    const std::string path = folder + "/" + kFilesWithNames[i], name = named_token(files.with_names[i], key.c_str(), path);
    if (name.empty()) continue;
    if (TokenizerOfModel::id_of(tokenizer, name) < 0)
      bad_file(path, fmt::format("{}: \"{}\" is no token of {}; name one that is, or add it there: "
                                 "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) in Python",
                                 key, printable(name), tokenizer_path));
    return name;
  }
  for (size_t i = 0; i < kFilesWithIds.size(); ++i) {
    TokenOfIds token = token_with_id(files.with_ids[i], key + "_id", tokenizer, folder + "/" + kFilesWithIds[i]);
    if (!token.name.empty()) return token.name;
    if (i == 0 && key == "eos_token") refuse_unknown_end(token.unknown, folder, tokenizer_path);
  }
  return "";
}

}  // namespace

void check_role_files(const std::string& folder) {
  for (const char* name : {kFilesWithNames[0], kFilesWithNames[1], kFilesWithIds[0]})
    static_cast<void>(read_role_file(folder + "/" + name));
}

TokenRoles roles_in_folder(const std::string& folder, const Tokenizer& tokenizer, const std::string& file) {
  RoleFiles files;
  for (size_t i = 0; i < 2; ++i) files.with_names[i] = read_role_file(folder + "/" + kFilesWithNames[i]);
  files.with_ids = {read_role_file(folder + "/" + kFilesWithIds[0]), read_if_of_model(folder + "/" + kFilesWithIds[1])};
  TokenRoles roles{role(files, folder, "eos_token", tokenizer, file), role(files, folder, "bos_token", tokenizer, file)};
  if (roles.end_of_text.empty())
    roles.unknown_ends = token_with_id(files.with_ids[1], "eos_token_id", tokenizer, folder + "/" + kFilesWithIds[1]).unknown;
  return roles;
}

std::shared_ptr<Tokenizer> with_roles(std::shared_ptr<Tokenizer> tokenizer, const TokenRoles& roles) {
  const bool ends_alike = roles.end_of_text.empty() || roles.end_of_text == end_of_text_of(*tokenizer);
  const bool begins_alike = roles.begin_of_text.empty() || roles.begin_of_text == begin_of_text_of(*tokenizer);
  if (ends_alike && begins_alike) return tokenizer;
  return std::make_shared<TokenizerOfModel>(
      tokenizer, TokenRoles{roles.end_of_text.empty() ? end_of_text_of(*tokenizer) : roles.end_of_text,
                            roles.begin_of_text.empty() ? begin_of_text_of(*tokenizer) : roles.begin_of_text});
}

}  // namespace trivet::data
