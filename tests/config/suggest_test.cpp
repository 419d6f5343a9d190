#include "engine/config/suggest.h"

#include <algorithm>
#include <random>
#include <set>

#include "engine/config/json_node.h"
#include "engine/config/key_table.h"
#include "tests/config/support.h"

namespace trivet::config {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("stage", "stage"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("stag", "stage"), 1);
  EXPECT_EQ(edit_distance("sstage", "stage"), 1);
  EXPECT_EQ(edit_distance("stege", "stage"), 1);
  EXPECT_EQ(edit_distance("satge", "stage"), 1);
  EXPECT_EQ(edit_distance("depth", "dteh"), 2);  // delete p, then swap e and t
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

std::set<std::string> one_edit(const std::string& word) {
  std::set<std::string> typos;
  for (size_t i = 0; i <= word.size(); ++i) {
    for (const char c : {'x', 's', '_'}) typos.insert(word.substr(0, i) + c + word.substr(i));
    if (i == word.size()) break;
    typos.insert(word.substr(0, i) + word.substr(i + 1));
    for (const char c : {'x', 'e'}) typos.insert(word.substr(0, i) + c + word.substr(i + 1));
    if (i + 1 < word.size()) typos.insert(word.substr(0, i) + word[i + 1] + word[i] + word.substr(i + 2));
  }
  return typos;
}

std::string random_edit(const std::string& word, std::mt19937& random) {
  const std::set<std::string> typos = one_edit(word);
  return *std::next(typos.begin(), static_cast<long>(random() % typos.size()));
}

std::set<std::string> two_edits(const std::string& word, std::mt19937& random) {
  std::set<std::string> typos;
  for (int i = 0; i < 40; ++i) typos.insert(random_edit(random_edit(word, random), random));
  return typos;
}

std::vector<std::string> all_sections() {
  std::set<std::string> sections{""};
  for (const KeyEntry& entry : key_table().entries())
    for (std::string section = entry.section(); sections.insert(section).second && section.find('.') != std::string::npos;)
      section = section.substr(0, section.rfind('.'));
  return {sections.begin(), sections.end()};
}

struct Score {
  int typos = 0, first = 0;  // misspelt words; those whose first suggestion is right
};

// Every misspelt word must lead to the right one; usually it comes first.
void count(Score& score, const std::set<std::string>& typos, const std::string& name, const std::vector<std::string>& known) {
  for (const std::string& typo : typos) {
    if (typo.empty() || std::find(known.begin(), known.end(), typo) != known.end()) continue;
    const std::vector<std::string> near = nearest_names(typo, known);
    score.typos += 1;
    score.first += !near.empty() && near.front() == name;
    const bool suggested = std::find(near.begin(), near.end(), name) != near.end();
    EXPECT_TRUE(suggested) << name << " misspelt as " << typo << " gives " << one_of(near);
  }
}

TEST(Suggestions, EveryKeyOfEverySectionIsFoundAfterOneEdit) {
  Score score;
  for (const std::string& section : all_sections()) {
    const std::vector<std::string> known = key_table().names_in(section);
    for (const std::string& name : known) count(score, one_edit(name), name, known);
  }
  EXPECT_GT(score.typos, 30000);
  EXPECT_GT(score.first, 0.995 * score.typos);
}

TEST(Suggestions, EveryKeyOfEverySectionIsFoundAfterTwoEdits) {
  std::mt19937 random(1);
  Score score;
  for (const std::string& section : all_sections()) {
    const std::vector<std::string> known = key_table().names_in(section);
    for (const std::string& name : known) count(score, two_edits(name, random), name, known);
  }
  EXPECT_GT(score.typos, 15000);
  EXPECT_GT(score.first, 0.98 * score.typos);
}

// The same holds for the parser: the message names the misspelt key and the right one.
TEST(Suggestions, AMisspeltKeyInAnySectionIsRefusedWithTheRightOne) {
  int misspelt = 0;
  for (const KeyEntry& entry : key_table().entries()) {
    const std::string name(entry.name());
    const std::string typo = name.size() < 4 ? name + "x" : name.substr(0, 2) + name.substr(3);
    const std::string section = entry.section(), path = section.empty() ? typo : section + "." + typo;
    if (key_table().find(path) || key_table().feature_around(entry.path)) continue;
    if (trivet::refusal("{}", {path + "=1"}) == "accepted") continue;  // a section that is switched off may hold anything
    const std::string message = trivet::refusal("{}", {path + "=1"});
    EXPECT_TRUE(message.starts_with("--set: " + path + ": unknown key; did you mean ")) << message;
    EXPECT_NE(message.find(quoted(name)), std::string::npos) << message;
    ++misspelt;
  }
  EXPECT_GT(misspelt, 250);
}

TEST(Suggestions, NothingIsSuggestedWhenNothingIsNear) { EXPECT_TRUE(nearest_names("quux", {"stage", "betas"}).empty()); }

TEST(Suggestions, AtMostThreeTheBestFirst) {
  EXPECT_EQ(nearest_names("buffer_size", {"buffer_sizes", "buffer_sise", "buffr_size", "bufer_size"}).size(), 3u);
  EXPECT_EQ(nearest_names("stagee", {"stages", "stage"}).front(), "stage");
}

}  // namespace
}  // namespace trivet::config
