#include "data/word_folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/image_folder.h"
#include "data/text_file.h"

namespace trivet::data {
namespace {

constexpr int64_t kMaxLabelBytes = int64_t{64} << 20;

bool is_plain(char character) { return character >= ' ' && character <= '~'; }

// A name with control characters could change a terminal that shows it in a message, and the system would cut it at a zero.
bool is_name(const std::string& name) {
  return !name.empty() && !name.starts_with(".") && name.find('/') == std::string::npos && printable_lines(name) == name;
}

// The characters that occur in the labels, in the order of their codes.
std::string characters_of(const std::vector<WordLabel>& labels) {
  std::string characters;
  for (const WordLabel& label : labels) characters += label.text;
  std::ranges::sort(characters);
  characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
  return characters;
}

WordLabel read_line(std::string_view line, const std::string& where) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos)
    bad_file(where, fmt::format("\"{}\" has no tab; write the name of a PNG file, a tab, and the text", printable(line)));
  WordLabel label{std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))};
  if (!is_name(label.file))
    bad_file(where, fmt::format("\"{}\" is not accepted; name a PNG file of this folder", printable(label.file)));
  const auto size = static_cast<int64_t>(label.text.size());
  if (size < 1 || size > kMaxWordLength)
    bad_file(where, fmt::format("the text has {} characters; use 1 to {}", size, kMaxWordLength));
  if (!std::ranges::all_of(label.text, is_plain))
    bad_file(where,
             fmt::format("\"{}\" has characters other than letters, digits, signs and spaces of ASCII", printable(label.text)));
  return label;
}

}  // namespace

std::vector<WordLabel> parse_word_labels(std::string_view text, const std::string& path) {
  std::vector<WordLabel> labels;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) labels.push_back(read_line(line, fmt::format("{}:{}", path, number)));
  }
  if (labels.empty()) bad_file(path, "has no lines; write a line for each image: the name of a PNG file, a tab, and the text");
  return labels;
}

Images read_word_folder(const std::string& path, std::string& characters) {
  const std::string labels_path = path + "/" + kWordLabels;
  const std::vector<WordLabel> labels =
      parse_word_labels(read_text(labels_path, kMaxLabelBytes, "a file of labels"), labels_path);
  if (characters.empty()) characters = characters_of(labels);
  Images images{.pixels = {}, .classes = {}, .characters = characters};
  for (const WordLabel& label : labels) images.places = std::max(images.places, static_cast<int64_t>(label.text.size()));
  for (const WordLabel& label : labels) {
    add_picture(path + "/" + label.file, images);
    for (const char character : label.text) {
      const size_t known = characters.find(character);
      if (known == std::string::npos)
        bad_file(labels_path,
                 fmt::format("\"{}\" has the character '{}', which the training images do not have", label.text, character));
      images.classes.push_back(static_cast<int32_t>(known) + 1);
    }
    images.classes.resize(images.classes.size() + static_cast<size_t>(images.places) - label.text.size(), -1);
  }
  return images;
}

}  // namespace trivet::data
