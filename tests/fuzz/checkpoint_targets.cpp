// Fuzz targets for checkpoints: the manifest, the run state in it, the header of a safetensors file, and a step of one file.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/crc32c.h"
#include "engine/checkpoint/loaded_step.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/run_state.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/fuzz/targets.h"
#include "tests/support/memory_file_system.h"

namespace trivet::fuzz {
namespace {

using namespace checkpoint;
using nlohmann::json;

constexpr std::initializer_list<ExitCode> kCheckpointRefused{ExitCode::CheckpointCorrupt, ExitCode::VersionSkew};

// Adds the first line of a manifest, which holds the checksum of the rest.
std::string with_checksum(std::string_view rest) {
  return fmt::format("{{\"manifest_xxh3\": \"{:016x}\",\n{}", XXH3_64bits(rest.data(), rest.size()), rest);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Corrects what the manifest says about its file, so that what comes after that comparison is tried, too.
std::string about_file(std::string_view rest, std::string_view content) {
  json manifest = json::parse("{" + std::string(rest), nullptr, false);
  if (!manifest.is_object() || content.size() < 8) return with_checksum(rest);
  uint64_t header = 0;
  std::memcpy(&header, content.data(), 8);
  header = std::min<uint64_t>(header, content.size() - 8) + 8;
  manifest["files"] = {{"rank-00000.safetensors",
                        {{"bytes", content.size()},
                         {"header_bytes", header},
                         {"header_crc32c", fmt::format("{:08x}", crc32c(bytes_of(content.substr(0, header))))},
                         {"xxh3", fmt::format("{:016x}", XXH3_64bits(content.data(), content.size()))}}}};
  return with_checksum(manifest.dump(-1, ' ', false, json::error_handler_t::replace).substr(1) + "\n");
}

bool same_entries(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  const auto same = [&](const TensorEntry& entry) {
    const TensorEntry* other = b.find(entry.name);
    return other && other->dtype == entry.dtype && other->shape == entry.shape &&
           other->end - other->begin == entry.end - entry.begin;
  };
  return a.tensors.size() == b.tensors.size() && std::all_of(a.tensors.begin(), a.tensors.end(), same);
}

void read_all(const LoadedStep& step) {
  for (const auto& [name, tensor] : step.manifest().tensors) {
    if (tensor.shape.elements() > 1 << 16) continue;
    std::vector<std::byte> data(tensor.shape.elements() * size_of(tensor.dtype));
    const Piece piece = whole_box_piece(name, tensor.shape, 0, {data.data(), tensor.dtype, {tensor.shape.elements()}});
    accepts(kCheckpointRefused, [&] { step.read({&piece, 1}, 1); });
  }
}

}  // namespace

void manifest(std::string_view input) {
  Manifest manifest;
  if (!accepts(kCheckpointRefused, [&] { manifest = parse_manifest(with_checksum(input), "input"); })) return;
  const std::string written = to_text(manifest);
  require(to_text(parse_manifest(written, "written")) == written, "what was read, written and read again is the same");
}

void run_state(std::string_view input) {
  RunState state;
  if (!accepts(kCheckpointRefused, [&] { state = parse_run_state(input, "input"); })) return;
  const std::string written = to_text(state);
  require(to_text(parse_run_state(written, "written")) == written, "what was read, written and read again is the same");
}

// The input is the size of the file, as 4 bytes, then the header's JSON.
void safetensors(std::string_view input) {
  if (input.size() < 4) return;
  uint32_t file_bytes = 0;
  std::memcpy(&file_bytes, input.data(), 4);
  const uint64_t size = input.size() - 4;
  const std::string start = std::string(reinterpret_cast<const char*>(&size), 8) + std::string(input.substr(4));
  SafetensorsHeader header;
  const int64_t least = static_cast<int64_t>(start.size());
  const auto parse = [&] { header = parse_safetensors_header(start, std::max<int64_t>(file_bytes, least), "input"); };
  if (!accepts(kCheckpointRefused, parse)) return;
  SafetensorsHeader copy = header;
  const std::string written = layout_safetensors(copy);
  const int64_t data = copy.tensors.empty() ? 0 : copy.tensors.back().end;
  const SafetensorsHeader again = parse_safetensors_header(written, static_cast<int64_t>(written.size()) + data, "written");
  require(same_entries(header, again) && again.metadata == copy.metadata, "what was read, written and read again is the same");
}

// The input is the length of the manifest, as 2 bytes, the manifest without its first line, and the file of rank 0.
void shard(std::string_view input) {
  if (input.size() < 2) return;
  uint16_t length = 0;
  std::memcpy(&length, input.data(), 2);
  const std::string_view rest = input.substr(2, length), content = input.substr(std::min(input.size(), size_t{2} + length));
  support::MemoryFileSystem files;
  files.create_directory("/step");
  write_text(files, "/step/rank-00000.safetensors", content);
  write_text(files, "/step/manifest.json", about_file(rest, content));
  accepts(kCheckpointRefused, [&] {
    const LoadedStep step(files, "/step");
    read_all(step);
    step.verify(0, 1, 1);
  });
}

}  // namespace trivet::fuzz
