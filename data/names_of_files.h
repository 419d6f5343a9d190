// Tells by their names which files are texts, which come with data and are none, and which are for tests.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace trivet::data {

// Returns the text in small letters of ASCII.
std::string small_letters(std::string_view text);

// NAME.txt, NAME.text or NAME.md, also with .gz or .zst after it.
bool has_name_of_text(const std::string& path);

// README.md, README_zh.md, LICENSE, tokenizer.json and the like, which come with data and are none. Files of a series, such as
// notice-1.txt, and texts about something, such as license-plates.txt, are not among them.
bool comes_with_data(const std::string& path);

// Recognizes files that editors, downloads and writers leave next to the file itself: "a.jsonl~", "a.jsonl.tmp".
bool is_draft(const std::string& path);

// Recognizes files that `trivet launch --enable_each_rank_log` writes: "rank_0.out", "rank_12.err".
bool is_log_of_rank(const std::string& path);

// The words of a name between anything but letters, in small letters: "data/test-00000-of-00001.parquet" has data, test, of and
// parquet. Held_out has heldout, too.
std::set<std::string> words_in(const std::string& path);
bool is_for_tests(const std::set<std::string>& words);
bool is_for_training(const std::set<std::string>& words);

}  // namespace trivet::data
