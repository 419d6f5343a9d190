#include "engine/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::checkpoint {
namespace {

constexpr int64_t kHeaderLimitBytes = 100'000'000;
constexpr int64_t kMostHeaderValues = 4'000'000;  // a tensor has about 9
constexpr const char* kMetadata = "__metadata__";

// Types in the order in which a file holds them: by alignment, so that tensors are aligned to their elements' size.
constexpr std::array<std::pair<std::string_view, DType>, 8> kFormatNames{{{"I64", DType::Int64},
                                                                          {"F64", DType::Float64},
                                                                          {"F32", DType::Float32},
                                                                          {"I32", DType::Int32},
                                                                          {"BF16", DType::BFloat16},
                                                                          {"F16", DType::Float16},
                                                                          {"U16", DType::UInt16},
                                                                          {"U8", DType::UInt8}}};

size_t format_rank(DType dtype) {
  return std::find_if(kFormatNames.begin(), kFormatNames.end(), [&](const auto& n) { return n.second == dtype; }) -
         kFormatNames.begin();
}

DType parse_dtype(const std::string& name, const std::string& where) {
  for (const auto& [known, dtype] : kFormatNames)
    if (known == name) return dtype;
  corrupt(where, fmt::format("dtype \"{}\" is not accepted; weights are F32, BF16 or F16", printable(name)));
}

TensorEntry parse_entry(const std::string& name, const Json& json, const std::string& path) {
  const std::string where = fmt::format("{}: tensor \"{}\"", path, printable(name));
  TensorEntry entry{name, parse_dtype(to_text(member(json, "dtype", where), where), where),
                    to_shape(member(json, "shape", where), where), 0, 0};
  const Json& offsets = member(json, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) corrupt(where, "data_offsets are not two numbers");
  entry.begin = to_count(offsets[0], where);
  entry.end = to_count(offsets[1], where);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(entry.shape.elements(), size_of(entry.dtype), &bytes) || entry.end < entry.begin ||
      entry.end - entry.begin != bytes)
    corrupt(where, fmt::format("data_offsets [{}, {}] do not hold {} {}", entry.begin, entry.end, to_string(entry.shape),
                               name_of(entry.dtype)));
  return entry;
}

constexpr const char* kTruncated = "it is truncated; get it again";

void check_no_holes(const SafetensorsHeader& header, int64_t file_bytes, const std::string& path) {
  int64_t end = 0;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.begin != end)
      corrupt(path, fmt::format("tensor \"{}\" starts at byte {} of the data, {} is expected: {}", printable(entry.name),
                                entry.begin, end, entry.begin > end ? "a hole" : "an overlap"));
    end = entry.end;
  }
  if (header.data_start + end != file_bytes)
    corrupt(path,
            fmt::format("the header says {} bytes, the file has {}; {}", header.data_start + end, file_bytes,
                        header.data_start + end > file_bytes ? kTruncated : "something follows the tensors; get it again"));
}

std::map<std::string, std::string> parse_metadata(const Json& json, const std::string& path) {
  if (!json.is_object()) corrupt(path, "__metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) metadata[key] = to_text(value, path + ": __metadata__");
  return metadata;
}

// One blank in the place of several: a parser takes long over them, and a header of 100 MB may be full of them.
std::string with_single_blanks(std::string_view json) {
  std::string packed;
  bool in_string = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char byte = json[at];
    const bool is_blank = !in_string && (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t');
    if (is_blank && packed.ends_with(' ')) continue;
    packed += is_blank ? ' ' : byte;
    if (in_string && byte == '\\' && at + 1 < json.size()) packed += json[++at];
    if (byte == '"') in_string = !in_string;
  }
  return packed;
}

int64_t checked_header_bytes(std::string_view first_8_bytes, int64_t file_bytes, const std::string& path) {
  if (file_bytes < 8) corrupt(path, fmt::format("{} bytes are too few for a safetensors file; {}", file_bytes, kTruncated));
  uint64_t bytes = 0;
  std::memcpy(&bytes, first_8_bytes.data(), 8);
  if (bytes > static_cast<uint64_t>(kHeaderLimitBytes))
    corrupt(path, fmt::format("the header says it has {} bytes; at most {} are accepted", bytes, kHeaderLimitBytes));
  if (static_cast<int64_t>(bytes) + 8 > file_bytes)
    corrupt(path, fmt::format("the header says it has {} bytes, the file has {}; {}", bytes, file_bytes, kTruncated));
  return static_cast<int64_t>(bytes);
}

}  // namespace

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorEntry& entry) { return entry.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

std::string layout_safetensors(SafetensorsHeader& header) {
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(format_rank(a.dtype), std::string_view(a.name)) <
           std::pair(format_rank(b.dtype), std::string_view(b.name));
  });
  nlohmann::ordered_json json;
  header.metadata["format"] = "pt";  // some readers refuse files without it
  json[kMetadata] = header.metadata;
  int64_t offset = 0;
  for (TensorEntry& entry : header.tensors) {
    entry.begin = offset;
    offset += entry.shape.elements() * size_of(entry.dtype);
    entry.end = offset;
    json[entry.name] = {{"dtype", kFormatNames[format_rank(entry.dtype)].first},
                        {"shape", std::vector<int64_t>(entry.shape.span().begin(), entry.shape.span().end())},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t bytes = text.size();
  header.data_start = static_cast<int64_t>(bytes) + 8;
  return std::string(reinterpret_cast<const char*>(&bytes), 8) + text;
}

SafetensorsHeader parse_safetensors_header(std::string_view start, int64_t file_bytes, const std::string& path) {
  const int64_t bytes = checked_header_bytes(start, file_bytes, path);
  constexpr int64_t kLongHeader = 1 << 20;
  const std::string_view text = start.substr(8, static_cast<size_t>(bytes));
  const Json json = parse_strict(bytes > kLongHeader ? with_single_blanks(text) : std::string(text), path, kMostHeaderValues);
  if (!json.is_object()) corrupt(path, "the header is not an object");
  SafetensorsHeader header;
  header.data_start = bytes + 8;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata)
      header.metadata = parse_metadata(value, path);
    else
      header.tensors.push_back(parse_entry(name, value, path));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  check_no_holes(header, file_bytes, path);
  return header;
}

}  // namespace trivet::checkpoint
