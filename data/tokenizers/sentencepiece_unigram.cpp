#include "data/tokenizers/sentencepiece_segmentation.h"

#include <algorithm>
#include <limits>

#include "data/tokenizers/code_points.h"
#include "data/tokenizers/joined_characters.h"

namespace trivet::data {
namespace {

// The path whose pieces have the largest sum of scores, added as floats from the beginning of the text, as sentencepiece 0.2.3
// does: which of two almost equal paths wins depends on the rounding. Where a sum is below -100,000, counting starts again from
// there.
class UnigramSegmentation final : public Segmentation {
 public:
  explicit UnigramSegmentation(const SentencePieceFile& file) : unknowns_(file) {
    float least = std::numeric_limits<float>::max();
    for (const SentencePiece& piece : file.pieces)
      if (piece.type == PieceType::Normal) least = std::min(least, piece.score);
    unknown_score_ = least - 10.0F;
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const SentencePiece& piece = file.pieces[id];
      scores_.push_back(piece.type == PieceType::UserDefined ? score_of_user_defined(piece.text) : piece.score);
      if (!is_text_piece(piece) || piece.type == PieceType::Unused) continue;
      pieces_.add(piece.text, static_cast<int32_t>(id));
      joined_.add(piece.text);
    }
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<Step> steps(1);
    size_t start = 0;  // steps[i] ends at text[start + i]
    char32_t previous = kNotUtf8;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      if (at - start >= kBlockBytes && !joined_.may_join(previous, point.value)) {  // every path goes through here
        const float score = steps[at - start].score;
        append(text.substr(start, at - start), steps, ids);
        steps.assign(1, {.score = score});
        start = at;
      }
      if (steps[at - start].score < kLeastSum) count_from(at - start, steps);
      extend(text, at, static_cast<size_t>(point.bytes), start, steps);
      previous = point.value;
      at += static_cast<size_t>(point.bytes);
    }
    append(text.substr(start), steps, ids);
  }

 private:
  static constexpr size_t kBlockBytes = 4096;
  static constexpr float kLeastSum = -100000;
  static constexpr int32_t kNone = -1;
  // The best way to a place in the text, and its last piece.
  struct Step {
    float score = 0;
    uint32_t bytes = 0;
    int32_t id = kNone;
  };

  // Whatever score the file has for it.
  static float score_of_user_defined(std::string_view piece) { return 0.1F * (static_cast<float>(piece.size()) - 1); }

  // The sums from `place` on become sums since `place`.
  static void count_from(size_t place, std::vector<Step>& steps) {
    const float before = steps[place].score;
    for (size_t i = place; i < steps.size(); ++i) steps[i].score -= before;
  }

  void extend(std::string_view text, size_t at, size_t character, size_t start, std::vector<Step>& steps) const {
    const float here = steps[at - start].score;
    bool has_character = false;
    const auto consider = [&](size_t bytes, int32_t id, float score) {
      const size_t to = at + bytes - start;
      if (steps.size() <= to) steps.resize(to + 1);
      Step& step = steps[to];
      if (step.id == kNone || score > step.score) step = {score, static_cast<uint32_t>(bytes), id};
    };
    pieces_.for_each_prefix(text.substr(at), [&](size_t bytes, int32_t id) {
      consider(bytes, id, scores_[id] + here);
      has_character = has_character || bytes == character;
    });
    if (!has_character) consider(character, unknowns_.id(), unknown_score_ + here);
  }

  void append(std::string_view text, const std::vector<Step>& steps, std::vector<int32_t>& ids) const {
    std::vector<size_t> ends;
    for (size_t end = text.size(); end > 0; end -= steps[end].bytes) ends.push_back(end);
    for (size_t i = ends.size(); i-- > 0;) {
      const Step& step = steps[ends[i]];
      if (step.id == unknowns_.id())
        unknowns_.append(text.substr(ends[i] - step.bytes, step.bytes), ids);
      else
        ids.push_back(step.id);
    }
  }

  Unknowns unknowns_;
  ByteTrie pieces_;
  JoinedCharacters joined_;
  std::vector<float> scores_;
  float unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<Segmentation> unigram_segmentation(const SentencePieceFile& file) {
  return std::make_unique<UnigramSegmentation>(file);
}

}  // namespace trivet::data
