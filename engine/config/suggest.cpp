#include "engine/config/suggest.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <tuple>

#include "engine/config/json_node.h"

namespace trivet::config {
namespace {

constexpr size_t kLongestMeant = 100;  // no known name is close to a longer one, and comparing takes time and memory

size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return end - a.begin();
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// A number of edits that is never more than the distance, and much quicker to find: how many letters of one word the other one
// lacks. Rare letters count as one.
int least_edits(std::string_view a, std::string_view b) {
  constexpr size_t kKinds = 32;
  std::array<int, kKinds> surplus{};  // surplus of a in each kind
  for (const unsigned char letter : a) ++surplus[letter % kKinds];
  for (const unsigned char letter : b) --surplus[letter % kKinds];
  int of_a = 0, of_b = 0;
  for (const int count : surplus) (count > 0 ? of_a : of_b) += std::abs(count);
  return std::max(of_a, of_b);
}

}  // namespace

// Lowrance and Wagner, "An Extension of the String-to-String Correction Problem" (1975): letters may be swapped and then have
// others inserted between them. d(i + 1, j + 1) is the distance between the first i letters of a and the first j letters of b;
// row and column 0 hold a distance that is never the smallest.
int edit_distance(std::string_view a, std::string_view b) {
  const int far = static_cast<int>(a.size() + b.size());
  const size_t width = b.size() + 2;
  std::vector<int> cells((a.size() + 2) * width, far);
  const auto d = [&](size_t i, size_t j) -> int& { return cells[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) d(i + 1, 1) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d(1, j + 1) = static_cast<int>(j);
  std::array<size_t, 256> last_row{};  // where each letter was last seen in a, counted from 1
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t last_match = 0;  // in b, in this row
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t row = last_row[static_cast<unsigned char>(b[j - 1])], column = last_match;
      const bool same = a[i - 1] == b[j - 1];
      if (same) last_match = j;
      const int swap = d(row, column) + static_cast<int>(i - row - 1) + 1 + static_cast<int>(j - column - 1);
      d(i + 1, j + 1) = std::min({d(i, j) + !same, d(i + 1, j) + 1, d(i, j + 1) + 1, swap});
    }
    last_row[static_cast<unsigned char>(a[i - 1])] = i;
  }
  return d(a.size() + 1, b.size() + 1);
}

std::vector<std::string> nearest_names(const std::string& unknown, const std::vector<std::string>& known) {
  if (unknown.size() > kLongestMeant) return {};
  const long enough = std::max<long>(2, static_cast<long>(unknown.size()) / 4);
  const std::string lower_unknown = lower(unknown);
  std::vector<std::tuple<int, long, std::string>> ranked;  // fewest edits, then longest common prefix
  for (const std::string& name : known) {
    if (std::abs(std::ssize(name) - std::ssize(unknown)) > enough) continue;  // each extra letter is an edit
    const std::string lower_name = lower(name);
    if (least_edits(lower_unknown, lower_name) > enough) continue;
    const int distance = edit_distance(lower_unknown, lower_name);
    if (distance <= enough) ranked.emplace_back(distance, -static_cast<long>(common_prefix(unknown, name)), name);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (const auto& [distance, prefix, name] : ranked)
    if (names.size() < 3 && distance <= std::get<0>(ranked.front()) + 1) names.push_back(name);
  return names;
}

std::string one_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + quoted(names[i]);
  return text;
}

}  // namespace trivet::config
