#include <fmt/format.h>

#include <array>

#include "data/tokenizers/code_points.h"
#include "data/tokenizers/models.h"

namespace trivet::data {
namespace {

constexpr size_t kLongWordBytes = 32;

class BpeModel final : public WordModel {
 public:
  explicit BpeModel(BpeOptions options) : options_(std::move(options)), bytes_(ids_of_bytes(options_.ids)) {
    for (int byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      id_of_byte_[byte] = options_.ids.find({&text, 1});
    }
    // Fused unknown characters would not be fused over a cut.
    can_cut_ = !options_.byte_level && options_.end_of_word.empty() &&
               (!options_.fuse_unknown || options_.unknown < 0 || (options_.byte_fallback && !bytes_.empty()));
    if (can_cut_) options_.ids.for_each([&](const std::string& token, int32_t) { joined_.add(token); });
  }

  std::string name() const override { return "bpe"; }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    if (options_.whole_words_first) {
      const int32_t whole = options_.ids.find(word);
      if (whole >= 0) return ids.push_back(whole);
    }
    std::vector<int32_t> symbols;
    symbols.reserve(word.size());
    options_.byte_level ? begin_with_bytes(word, symbols) : begin_with_characters(word, symbols);
    options_.merges.apply(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  void for_each_part(std::string_view word, const std::function<void(std::string_view)>& visit) const override {
    if (!can_cut_ || word.size() <= kLongWordBytes) return visit(word);
    size_t start = 0;
    char32_t previous = kNotUtf8;
    for_each_code_point(word, [&](char32_t c, std::string_view bytes) {
      const size_t at = bytes.data() - word.data();
      if (at > start && !joined_.may_join(previous, c)) {
        visit(word.substr(start, at - start));
        start = at;
      }
      previous = c;
    });
    visit(word.substr(start));
  }

 private:
  void begin_with_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
    for (char c : word) symbols.push_back(id_of_byte_[static_cast<uint8_t>(c)]);
    if (!options_.end_of_word.empty() && !word.empty())
      symbols.back() = options_.ids.find(std::string(1, word.back()) + options_.end_of_word);
  }

  void begin_with_characters(std::string_view word, std::vector<int32_t>& symbols) const {
    bool fusing = false;
    for_each_code_point(word, [&](char32_t, std::string_view bytes) {
      const bool last = bytes.data() + bytes.size() == word.data() + word.size();
      const int32_t id = last && !options_.end_of_word.empty() ? options_.ids.find(std::string(bytes) + options_.end_of_word)
                                                               : options_.ids.find(bytes);
      if (id >= 0) {
        symbols.push_back(id);
        fusing = false;
      } else if (options_.byte_fallback && !bytes_.empty()) {
        for (char byte : bytes) symbols.push_back(bytes_[static_cast<uint8_t>(byte)]);
        fusing = false;
      } else if (options_.unknown >= 0) {
        if (!fusing) symbols.push_back(options_.unknown);
        fusing = options_.fuse_unknown;
      }
    });
  }

  BpeOptions options_;
  std::vector<int32_t> bytes_;
  std::array<int32_t, 256> id_of_byte_{};
  JoinedCharacters joined_;
  bool can_cut_ = false;
};

}  // namespace

std::vector<int32_t> ids_of_bytes(const TokenIds& ids) {
  std::vector<int32_t> found;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t id = ids.find(fmt::format("<0x{:02X}>", byte));
    if (id < 0) return {};
    found.push_back(id);
  }
  return found;
}

std::unique_ptr<WordModel> make_bpe_model(BpeOptions options) { return std::make_unique<BpeModel>(std::move(options)); }

}  // namespace trivet::data
