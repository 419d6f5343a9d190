#include "data/text_file.h"

#include <fmt/format.h>

#include "data/data_error.h"
#include "data/unpacked_file.h"

namespace trivet::data {

std::string read_text(const std::string& path, int64_t limit_bytes, std::string_view kind) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  UnpackedFile file(path);
  std::string text;
  bool more = true;
  while (more) {
    more = file.append(text, kPieceBytes);
    if (static_cast<int64_t>(text.size()) > limit_bytes)
      bad_file(path, fmt::format("has more than {} bytes (unpacked), which is the maximum for {}", limit_bytes, kind));
  }
  if (text.empty()) bad_file(path, "is empty");
  return text;
}

}  // namespace trivet::data
