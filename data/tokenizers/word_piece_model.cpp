#include "data/tokenizers/code_points.h"
#include "data/tokenizers/models.h"

namespace trivet::data {
namespace {

class WordPieceModel final : public WordModel {
 public:
  explicit WordPieceModel(WordPieceOptions options) : options_(std::move(options)) {
    options_.ids.for_each([&](const std::string& token, int32_t id) {
      first_.add(token, id);
      if (token.starts_with(options_.prefix)) inner_.add(std::string_view(token).substr(options_.prefix.size()), id);
    });
  }

  std::string name() const override { return "wordpiece"; }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    int64_t characters = 0;
    for_each_code_point(word, [&](char32_t, std::string_view) { ++characters; });
    if (characters > options_.most_characters) return ids.push_back(options_.unknown);
    const size_t before = ids.size();
    for (size_t at = 0; at < word.size();) {
      const ByteTrie::Match match = longest(at == 0 ? first_ : inner_, word.substr(at));
      if (match.bytes == 0) {
        ids.resize(before);
        return ids.push_back(options_.unknown);
      }
      ids.push_back(match.value);
      at += match.bytes;
    }
  }

 private:
  // The longest token that ends where a character ends.
  static ByteTrie::Match longest(const ByteTrie& tokens, std::string_view text) {
    ByteTrie::Match best;
    tokens.for_each_prefix(text, [&](size_t bytes, int32_t id) {
      if (bytes == text.size() || (static_cast<unsigned char>(text[bytes]) & 0xC0) != 0x80) best = {bytes, id};
    });
    return best;
  }

  WordPieceOptions options_;
  ByteTrie first_, inner_;
};

}  // namespace

std::unique_ptr<WordModel> make_word_piece_model(WordPieceOptions options) {
  return std::make_unique<WordPieceModel>(std::move(options));
}

}  // namespace trivet::data
