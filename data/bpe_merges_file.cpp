#include <fmt/format.h>

#include "core/printable.h"
#include "data/bpe_files.h"
#include "data/byte_alphabet.h"
#include "data/data_error.h"

namespace trivet::data {
namespace {

std::string part(std::string_view text, size_t line_number, const std::string& source) {
  const auto bytes = from_byte_alphabet(text);
  if (!bytes || bytes->empty())
    bad_file(source, fmt::format("line {}: \"{}\" is not written in GPT-2's byte alphabet", line_number, printable(text)));
  return *bytes;
}

}  // namespace

std::shared_ptr<BpeTokenizer> bpe_from_merges(std::string_view text, const std::string& source) {
  std::vector<std::pair<std::string, std::string>> merges;
  size_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      bad_file(source, fmt::format("line {}: \"{}\" is not a merge (two tokens separated by one space)", line_number,
                                   printable(line, 60)));
    merges.emplace_back(part(line.substr(0, space), line_number, source), part(line.substr(space + 1), line_number, source));
  }
  return std::make_shared<BpeTokenizer>(vocabulary_of_merges(merges, source), source);
}

}  // namespace trivet::data
