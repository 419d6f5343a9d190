#include "data/tokenizers/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/json_error.h"
#include "core/printable.h"
#include "data/byte_alphabet.h"
#include "data/data_error.h"
#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/composed.h"
#include "data/tokenizers/decoders.h"
#include "data/tokenizers/models.h"
#include "data/tokenizers/normalizers.h"
#include "data/tokenizers/pre_tokenizers.h"
#include "data/tokenizers/read_json.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostTokens = size_t{1} << 24;
constexpr size_t kMostSteps = 100;
constexpr size_t kMostFrameTokens = 1024;  // around a text
constexpr size_t kMostGaps = 1024;         // ids below the highest that no token has

Json member_or_null(const Json& json, const char* key) { return json.value(key, Json()); }

// Counts the components, also within others: each object with a type is one.
size_t steps_of(const Json& json) {
  if (!json.is_structured()) return 0;
  size_t steps = json.is_object() && json.contains("type") ? 1 : 0;
  for (const Json& part : json) steps += steps_of(part);
  return steps;
}

// Reads the vocabulary, the model and the added tokens into a composition.
class Reader {
 public:
  Reader(const Json& json, const std::string& source, AddedIds added_ids)
      : json_(json), model_(json.at("model"), "model", source), source_(source), added_ids_(added_ids) {}

  Composition read(const std::string& text) {
    parts_.text = text;
    for (const char* key : {"normalizer", "pre_tokenizer", "decoder"}) {
      const size_t steps = steps_of(member_or_null(json_, key));
      if (steps > kMostSteps)
        bad_file(source_, fmt::format("{}: has {} steps, each of which reads the whole text; at most {} are accepted", key,
                                      steps, kMostSteps));
    }
    parts_.normalizer = read_normalizer(member_or_null(json_, "normalizer"), source_);
    PreTokenization words = read_pre_tokenizer(member_or_null(json_, "pre_tokenizer"), source_);
    parts_.splitter = std::move(words.splitter);
    parts_.byte_level = words.byte_level;
    parts_.decoder = read_decoder(member_or_null(json_, "decoder"), source_);
    read_tokens();
    read_model();
    read_added();
    read_frame(member_or_null(json_, "post_processor"), "post_processor");
    return std::move(parts_);
  }

 private:
  std::string type() const {
    if (model_.has("type")) return model_.type();
    return model_.json().at("vocab").is_array() ? "Unigram" : "BPE";  // older files do not say it
  }

  // Otherwise one number in a short file could take much memory.
  void check_id(const Json& id) const {
    const size_t most = std::min(entries_ + kMostGaps, kMostTokens);
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= most)
      bad_file(source_, fmt::format("token id {} is outside 0 to {}, the range for {} entries", printable(id.dump()), most - 1,
                                    entries_));
  }

  void place(const Json& id, const std::string& token, size_t longest = kLongestWrittenToken) {
    check_id(id);
    if (token.size() > longest)
      bad_file(source_,
               fmt::format("token {} has {} bytes; at most {} are accepted", id.get<uint64_t>(), token.size(), longest));
    const auto place = id.get<size_t>();
    if (parts_.tokens.size() <= place) parts_.tokens.resize(place + 1);
    std::string& there = parts_.tokens[place];
    if (!there.empty() && there != token && there != to_byte_alphabet(token))
      bad_file(source_, fmt::format("two tokens have the id {}: \"{}\" and \"{}\"; texts would not come back as they were",
                                    place, printable(there, 60), printable(token, 60)));
    there = token;
  }

  void read_tokens() {
    const Json& vocabulary = model_.json().at("vocab");
    entries_ = vocabulary.size() + member_or_null(json_, "added_tokens").size();
    if (vocabulary.is_array()) {  // Unigram: pairs of a token and its score
      for (size_t id = 0; id < vocabulary.size(); ++id) {
        const Json& pair = vocabulary[id];
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number())
          bad_file(source_,
                   fmt::format("model.vocab[{}]: {} is not accepted; use [token, score]", id, printable(pair.dump(), 60)));
        place(Json(static_cast<uint64_t>(id)), pair[0].get_ref<const std::string&>(), kLongestSearched);
        scores_.push_back(pair[1].get<double>());
      }
    } else if (vocabulary.is_object()) {
      for (const auto& [token, id] : vocabulary.items()) place(id, token);
    } else {
      model_.refuse("vocab", "an object of tokens and their ids");
    }
    parts_.special.resize(parts_.tokens.size());
  }

  TokenIds token_ids(bool byte_level) const {
    TokenIds ids;
    const auto add = [&](const std::string& token, int32_t id) {
      if (!byte_level) return ids.add(token, id);
      if (auto bytes = from_byte_alphabet(token)) ids.add(std::move(*bytes), id);
    };
    const Json& vocabulary = model_.json().at("vocab");
    if (vocabulary.is_object())
      for (const auto& [token, id] : vocabulary.items()) add(token, id.get<int32_t>());
    else
      for (size_t id = 0; id < parts_.tokens.size(); ++id) add(parts_.tokens[id], static_cast<int32_t>(id));
    return ids;
  }

  void read_model() {
    const std::string type = this->type();
    if (type != "BPE" && parts_.byte_level)
      bad_file(source_,
               fmt::format("pre_tokenizer: ByteLevel with a model of type \"{}\" is not supported; use BPE", printable(type)));
    if ((type == "Unigram") != model_.json().at("vocab").is_array())
      model_.refuse("vocab", type == "Unigram" ? "a list of [token, score]" : "an object of tokens and their ids");
    if (type == "BPE") return read_bpe();
    if (type == "Unigram") return read_unigram();
    if (type == "WordPiece") return read_word_piece();
    model_.refuse_type("BPE, Unigram or WordPiece");
  }

  int32_t id_of(const TokenIds& ids, const char* key) const {
    const std::string token = model_.text(key, "");
    const int32_t id = ids.find(token);
    if (id < 0) model_.refuse(key, "a token of the vocabulary");
    return id;
  }

  void read_bpe() {
    if (model_.has("dropout") && model_.json().at("dropout") != 0.0) model_.refuse("dropout", "null or 0");
    if (!model_.text("continuing_subword_prefix", "").empty()) model_.refuse("continuing_subword_prefix", "null or \"\"");
    BpeOptions options{.ids = token_ids(parts_.byte_level), .merges = MergeTable(0), .byte_level = parts_.byte_level};
    options.end_of_word = model_.text("end_of_word_suffix", "");
    if (model_.has("unk_token") && !parts_.byte_level) options.unknown = id_of(options.ids, "unk_token");
    options.fuse_unknown = model_.flag("fuse_unk", false);
    options.byte_fallback = model_.flag("byte_fallback", false);
    options.whole_words_first = model_.flag("ignore_merges", false);
    if (parts_.byte_level) check_bytes(options);
    read_merges(options);
    parts_.model = make_bpe_model(std::move(options));
  }

  void check_bytes(const BpeOptions& options) const {
    for (int byte = 0; byte < 256; ++byte) {
      // A byte that occurs in no UTF-8 may be missing; text that has it is refused.
      const std::string text(1, static_cast<char>(byte));
      if (options.ids.find(text) < 0 || (!options.end_of_word.empty() && options.ids.find(text + options.end_of_word) < 0))
        bad_file(source_, fmt::format("byte {} has no token, so this is not a byte-level vocabulary", byte));
    }
  }

  // "a b" (older files) or ["a", "b"]
  std::pair<std::string, std::string> merge_parts(const Json& merge) const {
    if (merge.is_array() && merge.size() == 2) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    const std::string text = merge.is_string() ? merge.get<std::string>() : merge.dump();
    const size_t space = text.find(' ');
    if (!merge.is_string() || space == std::string::npos)
      bad_file(source_, fmt::format("model.merges: \"{}\" is not two tokens separated by a space", printable(text)));
    return {text.substr(0, space), text.substr(space + 1)};
  }

  void read_merges(BpeOptions& options) const {
    const Json& vocabulary = model_.json().at("vocab");
    const auto id_of_part = [&](const std::string& token) {
      const auto found = vocabulary.find(token);
      if (found == vocabulary.end())
        bad_file(source_, fmt::format("model.merges: \"{}\" is not in model.vocab", printable(token)));
      return found->get<int32_t>();
    };
    const Json& merges = model_.json().at("merges");
    if (!merges.is_array()) model_.refuse("merges", "a list of merges");
    options.merges = MergeTable(merges.size());
    int32_t rank = 0;
    for (const Json& merge : merges) {
      const auto [left, right] = merge_parts(merge);
      const int32_t left_id = id_of_part(left), right_id = id_of_part(right);
      const auto whole = vocabulary.find(left + right);
      if (whole == vocabulary.end())
        bad_file(source_,
                 fmt::format("merge {} produces \"{}\", which is not in the vocabulary", rank, printable(left + right)));
      options.merges.add(left_id, right_id, rank++, whole->get<int32_t>());
    }
  }

  void read_unigram() {
    UnigramOptions options{.ids = token_ids(false), .scores = scores_};
    const int64_t unknown = model_.number("unk_id", -1);
    if (unknown < 0 || unknown >= static_cast<int64_t>(scores_.size())) model_.refuse("unk_id", "the id of a token");
    options.unknown = static_cast<int32_t>(unknown);
    options.byte_fallback = model_.flag("byte_fallback", false);
    parts_.model = make_unigram_model(std::move(options));
  }

  void read_word_piece() {
    WordPieceOptions options{.ids = token_ids(false)};
    options.unknown = id_of(options.ids, "unk_token");
    options.prefix = model_.text("continuing_subword_prefix", "##");
    options.most_characters = model_.number("max_input_chars_per_word", 100);
    parts_.model = make_word_piece_model(std::move(options));
  }

  int32_t id_in_vocabulary(const std::string& token) {
    const Json& vocabulary = model_.json().at("vocab");
    if (vocabulary.is_object()) return vocabulary.value(token, int32_t{-1});
    if (!ids_of_unigram_) ids_of_unigram_ = token_ids(false);
    return ids_of_unigram_->find(token);
  }

  void check_added_id(const Json& id, const std::string& token) {
    if (added_ids_ == AddedIds::AsWritten) return;
    check_id(id);
    const auto written = id.get<size_t>();
    const int32_t known = id_in_vocabulary(token);
    const size_t given = known >= 0 ? known : std::max(model_.json().at("vocab").size(), ids_of_added_end_);
    const bool is_placed = written < parts_.tokens.size() && !parts_.tokens[written].empty();  // place() compares it
    if (written != given && !is_placed)
      bad_file(source_, fmt::format("added_tokens: \"{}\" has the id {}, but the library tokenizers gives it {}, whatever the "
                                    "file says; write that id, or save the tokenizer anew: "
                                    "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) in Python",
                                    printable(token, 60), written, given));
    ids_of_added_end_ = std::max(ids_of_added_end_, written + 1);
  }

  void read_added() {
    std::vector<AddedToken> before, after;
    if (!member_or_null(json_, "added_tokens").is_null())
      for (const JsonPart& part : JsonPart(json_, "tokenizer", source_).list("added_tokens")) {
        AddedToken token{.content = part.text("content", "")};
        if (token.content.empty()) part.refuse("content", "the text of a token");
        check_added_id(member_or_null(part.json(), "id"), token.content);
        place(member_or_null(part.json(), "id"), token.content);
        token.id = part.json().at("id").get<int32_t>();
        token.single_word = part.flag("single_word", false);
        token.lstrip = part.flag("lstrip", false);
        token.rstrip = part.flag("rstrip", false);
        token.special = part.flag("special", false);
        parts_.special.resize(parts_.tokens.size());
        parts_.special[token.id] = token.special;
        const bool in_normalized = part.flag("normalized", !token.special);
        if (in_normalized && parts_.normalizer) token.content = parts_.normalizer->normalize(token.content);
        if (token.content.size() > kLongestSearched)
          part.refuse("content", fmt::format("a text of at most {} bytes, also after the normalizer", kLongestSearched));
        (in_normalized ? after : before).push_back(std::move(token));
      }
    parts_.added_before = AddedTokens(std::move(before));
    parts_.added_after = AddedTokens(std::move(after));
  }

  // Reads the tokens that are put around a text: <s> ... </s>
  void read_frame(const Json& json, const std::string& place) {
    if (json.is_null()) return;
    const JsonPart part(json, place, source_);
    const std::string type = part.type();
    if (type == "Sequence") {
      for (const JsonPart& inner : part.list("processors")) read_frame(inner.json(), inner.place());
    } else if (type == "TemplateProcessing") {
      read_template(part);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      add_to_frame(parts_.frame.before, token_of_pair(part, "cls"));
      add_to_frame(parts_.frame.after, token_of_pair(part, "sep"));
    } else if (type != "ByteLevel") {
      part.refuse_type("BertProcessing, ByteLevel, RobertaProcessing, Sequence or TemplateProcessing");
    }
  }

  // A template may name a token of many ids many times.
  void add_to_frame(std::vector<int32_t>& side, int32_t id) const {
    if (parts_.frame.before.size() + parts_.frame.after.size() >= kMostFrameTokens)
      bad_file(source_, fmt::format("post_processor: puts more than {} tokens around a text", kMostFrameTokens));
    side.push_back(id);
  }

  int32_t checked_token(const JsonPart& part, const char* key, const Json& id) const {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= parts_.tokens.size()) part.refuse(key, "ids of the vocabulary");
    return id.get<int32_t>();
  }

  int32_t token_of_pair(const JsonPart& part, const char* key) const {
    const Json pair = member_or_null(part.json(), key);
    if (!pair.is_array() || pair.size() != 2) part.refuse(key, "[token, id]");
    return checked_token(part, key, pair[1]);
  }

  void read_template(const JsonPart& part) {
    bool after_text = false;
    for (const JsonPart& piece : part.list("single")) {
      if (piece.has("Sequence")) {
        after_text = true;
        continue;
      }
      const std::string name = piece.part("SpecialToken").text("id", "");
      const JsonPart tokens = part.part("special_tokens");
      if (!tokens.has(name.c_str())) tokens.refuse(name.c_str(), "a token with its ids");
      const JsonPart token = tokens.part(name.c_str());
      if (!token.has("ids") || !token.json().at("ids").is_array()) token.refuse("ids", "a list of ids");
      for (const Json& id : token.json().at("ids"))
        add_to_frame(after_text ? parts_.frame.after : parts_.frame.before, checked_token(token, "ids", id));
    }
  }

  const Json& json_;
  JsonPart model_;
  const std::string& source_;
  Composition parts_;
  std::vector<double> scores_;
  size_t entries_ = 0;
  AddedIds added_ids_;
  size_t ids_of_added_end_ = 0;  // after the highest so far
  std::optional<TokenIds> ids_of_unigram_;
};

}  // namespace

std::shared_ptr<Tokenizer> read_tokenizer_json(const Json& json, const std::string& text, const std::string& source,
                                               AddedIds added_ids) try {
  return std::make_shared<ComposedTokenizer>(Reader(json, source, added_ids).read(text));
} catch (const Json::exception& error) {
  bad_file(source, "is not a tokenizer.json: " + json_error_in_words(text, error));
}

}  // namespace trivet::data
