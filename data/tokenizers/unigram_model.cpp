#include <algorithm>
#include <limits>

#include "data/tokenizers/code_points.h"
#include "data/tokenizers/models.h"

namespace trivet::data {
namespace {

constexpr double kUnknownPenalty = 10;  // an unknown character is this much less likely than the least likely token

class UnigramModel final : public WordModel {
 public:
  explicit UnigramModel(UnigramOptions options) : options_(std::move(options)), bytes_(options_.ids) {
    options_.ids.for_each([&](const std::string& token, int32_t id) { tokens_.add(token, id); });
    double least = std::numeric_limits<double>::infinity();
    for (double score : options_.scores) least = std::min(least, score);
    unknown_score_ = least - kUnknownPenalty;
  }

  std::string name() const override { return "unigram"; }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    const std::vector<Step> best = best_path(word);
    std::vector<std::string_view> parts;  // from the last to the first
    size_t unknown_end = 0;               // > 0: unknown characters end here, and have not been added yet
    size_t at = word.size();
    const auto finish_unknown = [&] {
      if (unknown_end > 0) parts.push_back(word.substr(at, unknown_end - at));
      unknown_end = 0;
    };
    while (at > 0) {
      const Step& step = best[at];
      if (step.id == options_.unknown) {
        if (unknown_end == 0) unknown_end = at;
      } else {
        finish_unknown();
        parts.push_back(word.substr(step.begin, at - step.begin));
      }
      at = step.begin;
    }
    finish_unknown();
    for (size_t i = parts.size(); i-- > 0;) append(parts[i], ids);
  }

 private:
  // The best way to reach a place in the word: the last token on it, and where that begins.
  struct Step {
    double score = 0;
    size_t begin = std::string_view::npos;
    int32_t id = -1;
  };

  std::vector<Step> best_path(std::string_view word) const {
    std::vector<Step> best(word.size() + 1);
    for (size_t at = 0; at < word.size();) {
      const double here = best[at].score;
      const auto character = static_cast<size_t>(code_point_at(word, at).bytes);
      bool has_character = false;
      const auto consider = [&](size_t bytes, int32_t id, double score) {
        Step& step = best[at + bytes];
        if (step.begin == std::string_view::npos || here + score > step.score) step = {here + score, at, id};
      };
      tokens_.for_each_prefix(word.substr(at), [&](size_t bytes, int32_t id) {
        consider(bytes, id, options_.scores[id]);
        has_character = has_character || bytes == character;
      });
      if (!has_character) consider(character, options_.unknown, unknown_score_);
      at += character;
    }
    return best;
  }

  void append(std::string_view part, std::vector<int32_t>& ids) const {
    const int32_t id = options_.ids.find(part);
    if (id >= 0) return ids.push_back(id);
    if (!options_.byte_fallback || !bytes_.append(part, ids)) ids.push_back(options_.unknown);
  }

  UnigramOptions options_;
  ByteTokens bytes_;
  ByteTrie tokens_;
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<WordModel> make_unigram_model(UnigramOptions options) {
  return std::make_unique<UnigramModel>(std::move(options));
}

}  // namespace trivet::data
