#include "engine/checkpoint/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/run_state.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::checkpoint {
namespace {

constexpr const char* kFormat = "trivet-checkpoint";
constexpr int64_t kVersion = 1;
constexpr int64_t kMostManifestValues = 16'000'000;  // a piece has about 10
constexpr int64_t kMaxRanks = 1'000'000;
constexpr size_t kBoxLimit = 4096;  // per tensor: more than any tensor-parallel size

std::string hash_line(std::string_view rest) {
  return fmt::format("{{\"manifest_xxh3\": \"{:016x}\",\n", XXH3_64bits(rest.data(), rest.size()));
}

std::string hex_of(const std::vector<uint32_t>& values) {
  std::string text;
  for (uint32_t value : values) text += fmt::format("{:08x}", value);
  return text;
}

uint64_t parse_hex(std::string_view text, const std::string& where) {
  uint64_t value = 0;
  for (char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) corrupt(where, fmt::format("\"{}\" is not a checksum", printable(text)));
    value = value * 16 + static_cast<uint64_t>(digit);
  }
  return value;
}

uint64_t to_hash(const Json& value, size_t digits, const std::string& where) {
  const std::string& text = to_text(value, where);
  if (text.size() != digits) corrupt(where, fmt::format("\"{}\" is not a checksum of {} digits", printable(text), digits));
  return parse_hex(text, where);
}

std::vector<uint32_t> parse_blocks(const std::string& text, const std::string& where) {
  if (text.size() % 8 != 0) corrupt(where, "crc32c does not have 8 digits a block");
  std::vector<uint32_t> blocks;
  for (size_t at = 0; at < text.size(); at += 8)
    blocks.push_back(static_cast<uint32_t>(parse_hex(std::string_view(text).substr(at, 8), where)));
  return blocks;
}

const std::string& safe_name(const std::string& name, const std::string& where) {
  if (!is_safe_name(name))
    corrupt(where,
            fmt::format("file name \"{}\" is not accepted; it must be of the form [A-Za-z0-9._-]{{1,128}}", printable(name)));
  return name;
}

TensorInfo parse_tensor(const Json& json, const std::string& where) {
  const std::string& dtype = to_text(member(json, "dtype", where), where);
  const auto known = from_name<DType>(dtype);
  if (!known)
    corrupt(where, fmt::format("dtype \"{}\" is not accepted; use one of {}", printable(dtype), accepted_names<DType>()));
  return {*known, to_shape(member(json, "shape", where), where)};
}

StoredFile parse_file(const Json& json, const std::string& where) {
  return {to_count(member(json, "bytes", where), where), to_count(member(json, "header_bytes", where), where),
          static_cast<uint32_t>(to_hash(member(json, "header_crc32c", where), 8, where)),
          to_hash(member(json, "xxh3", where), 16, where)};
}

void check_piece(const StoredPiece& piece, const Manifest& manifest, const std::string& where) {
  const auto tensor = manifest.tensors.find(piece.tensor);
  if (tensor == manifest.tensors.end()) corrupt(where, "the tensor is not in \"tensors\"");
  if (!manifest.files.contains(piece.file)) corrupt(where, fmt::format("file \"{}\" is not in \"files\"", piece.file));
  const Shape& shape = tensor->second.shape;
  bool inside = piece.box_start.dims() == shape.dims() && piece.box_shape.dims() == shape.dims();
  for (int dim = 0; inside && dim < shape.dims(); ++dim) inside = piece.box_start[dim] <= shape[dim] - piece.box_shape[dim];
  if (!inside)
    corrupt(where, fmt::format("box {} + {} is not inside {}", to_string(piece.box_start), to_string(piece.box_shape),
                               to_string(shape)));
  const int64_t elements = piece.box_shape.elements();
  if (piece.first > elements || piece.count > elements - piece.first)
    corrupt(where, fmt::format("elements {} + {} are not inside a box of {}", piece.first, piece.count, elements));
  const int64_t bytes = piece.count * size_of(tensor->second.dtype);
  const size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  if (piece.block_crc32c.size() != blocks)
    corrupt(where, fmt::format("{} checksums, {} are expected", piece.block_crc32c.size(), blocks));
}

StoredPiece parse_piece(const Json& json, const Manifest& manifest, const std::string& path) {
  StoredPiece piece;
  piece.tensor = to_text(member(json, "tensor", path), path);
  const std::string where = fmt::format("{}: a piece of tensor \"{}\"", path, printable(piece.tensor));
  piece.file = safe_name(to_text(member(json, "file", where), where), where);
  piece.entry = to_text(member(json, "entry", where), where);
  piece.box_start = to_shape(member(json, "box_start", where), where);
  piece.box_shape = to_shape(member(json, "box_shape", where), where);
  piece.first = to_count(member(json, "first", where), where);
  piece.count = to_count(member(json, "count", where), where);
  piece.block_crc32c = parse_blocks(to_text(member(json, "crc32c", where), where), where);
  check_piece(piece, manifest, where);
  return piece;
}

std::vector<HostFiles> parse_hosts(const Json& json, const Manifest& manifest, const std::string& path) {
  std::vector<HostFiles> hosts;
  for (const Json& host : json) {
    const std::string where = path + ": hosts";
    hosts.push_back({to_text(member(host, "name", where), where), {}});
    for (const Json& file : member(host, "files", where)) {
      hosts.back().files.push_back(safe_name(to_text(file, where), where));
      if (!manifest.files.contains(hosts.back().files.back()))
        corrupt(where, fmt::format("file \"{}\" is not in \"files\"", hosts.back().files.back()));
    }
  }
  return hosts;
}

// Compares the checksum in the first line and returns its digits.
std::string check_hash(std::string_view text, const std::string& path) {
  const size_t line = std::min(hash_line("").size(), text.size());
  const std::string expected = hash_line(text.substr(line));
  if (text.substr(0, line) != expected)
    corrupt(path, fmt::format("the checksum in its first line is not that of the rest ({} bytes)", text.size()));
  return expected.substr(expected.find(": \"") + 3, 16);
}

bool same_box(const StoredPiece& a, const StoredPiece& b) { return a.box_start == b.box_start && a.box_shape == b.box_shape; }

bool boxes_overlap(const StoredPiece& a, const StoredPiece& b) {
  for (int dim = 0; dim < a.box_start.dims(); ++dim)
    if (a.box_start[dim] + a.box_shape[dim] <= b.box_start[dim] || b.box_start[dim] + b.box_shape[dim] <= a.box_start[dim])
      return false;
  return true;
}

bool by_box_and_range(const StoredPiece* a, const StoredPiece* b) {
  const auto key = [](const Shape& shape) { return std::vector(shape.span().begin(), shape.span().end()); };
  if (!same_box(*a, *b))
    return std::pair(key(a->box_start), key(a->box_shape)) < std::pair(key(b->box_start), key(b->box_shape));
  return a->first < b->first;
}

// Checks that boxes are equal or disjoint, and that the ranges of equal boxes are disjoint.
void check_disjoint(std::vector<const StoredPiece*>& pieces, const std::string& path) {
  const auto twice = [&](const StoredPiece& a, const StoredPiece& b) {
    corrupt(path, fmt::format("tensor \"{}\": elements are stored twice, in {} and {}", printable(a.tensor), a.file, b.file));
  };
  std::sort(pieces.begin(), pieces.end(), by_box_and_range);
  std::vector<const StoredPiece*> boxes;  // one piece of each box
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool known = i > 0 && same_box(*pieces[i - 1], *pieces[i]);
    if (known && pieces[i]->first < pieces[i - 1]->first + pieces[i - 1]->count) twice(*pieces[i - 1], *pieces[i]);
    if (!known) boxes.push_back(pieces[i]);
  }
  if (boxes.size() > kBoxLimit)
    corrupt(path, fmt::format("tensor \"{}\" has {} boxes", printable(boxes[0]->tensor), boxes.size()));
  for (size_t i = 0; i < boxes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (boxes_overlap(*boxes[i], *boxes[j])) twice(*boxes[j], *boxes[i]);
}

Json to_json(const StoredPiece& piece) {
  return {{"tensor", piece.tensor},
          {"file", piece.file},
          {"entry", piece.entry},
          {"box_start", from_shape(piece.box_start)},
          {"box_shape", from_shape(piece.box_shape)},
          {"first", piece.first},
          {"count", piece.count},
          {"crc32c", hex_of(piece.block_crc32c)}};
}

Json to_json(const HostFiles& host) { return {{"name", host.host}, {"files", host.files}}; }

Json to_json(const StoredFile& file) {
  return {{"bytes", file.bytes},
          {"header_bytes", file.header_bytes},
          {"header_crc32c", fmt::format("{:08x}", file.header_crc32c)},
          {"xxh3", fmt::format("{:016x}", file.xxh3)}};
}

}  // namespace

int64_t Manifest::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, file] : files) sum += file.bytes;
  return sum;
}

std::string Manifest::hosts_of(const std::string& file) const {
  std::string text;
  for (const HostFiles& host : hosts)
    if (std::find(host.files.begin(), host.files.end(), file) != host.files.end())
      text += (text.empty() ? "" : ", ") + printable(host.host);
  return text;
}

std::string to_text(const Manifest& manifest) {
  Json json = {{"format", kFormat},         {"version", kVersion},         {"run_id", manifest.run_id},
               {"step", manifest.step},     {"created", manifest.created}, {"ranks", manifest.ranks},
               {"config", manifest.config}, {"state", manifest.state}};
  json["tensors"] = Json::object();
  for (const auto& [name, tensor] : manifest.tensors)
    json["tensors"][name] = {{"dtype", name_of(tensor.dtype)}, {"shape", from_shape(tensor.shape)}};
  json["files"] = Json::object();
  for (const auto& [name, file] : manifest.files) json["files"][name] = to_json(file);
  json["pieces"] = Json::array();
  for (const StoredPiece& piece : manifest.pieces) json["pieces"].push_back(to_json(piece));
  if (!manifest.origin.empty()) {
    json["origin"] = manifest.origin;
    json["start"] = manifest.start;
  }
  if (!manifest.hosts.empty()) {
    json["hosts"] = Json::array();
    for (const HostFiles& host : manifest.hosts) json["hosts"].push_back(to_json(host));
  }
  const std::string rest = json.dump(1, ' ', false, Json::error_handler_t::replace).substr(1) + "\n";
  return hash_line(rest) + rest;
}

Manifest parse_share(std::string_view text, const std::string& path) {
  Manifest manifest;
  manifest.xxh3 = check_hash(text, path);
  const Json json = parse_strict(text, path, kMostManifestValues);
  if (to_text(member(json, "format", path), path) != kFormat) corrupt(path, "\"format\" is not \"trivet-checkpoint\"");
  if (const int64_t version = to_count(member(json, "version", path), path); version != kVersion)
    throw CheckpointError(ExitCode::VersionSkew,
                          fmt::format("{}: format version {}, this program reads {}; use the version of trivet "
                                      "that wrote it",
                                      path, version, kVersion));
  manifest.run_id = to_text(member(json, "run_id", path), path);
  manifest.step = to_count(member(json, "step", path), path);
  manifest.created = to_count(member(json, "created", path), path);
  manifest.ranks = to_count(member(json, "ranks", path), path);
  manifest.config = to_text(member(json, "config", path), path);
  manifest.state = to_text(member(json, "state", path), path);
  for (const auto& [name, value] : member(json, "tensors", path).items())
    manifest.tensors[name] = parse_tensor(value, fmt::format("{}: tensor \"{}\"", path, printable(name)));
  for (const auto& [name, value] : member(json, "files", path).items())
    manifest.files[safe_name(name, path)] = parse_file(value, fmt::format("{}: file \"{}\"", path, name));
  for (const Json& piece : member(json, "pieces", path)) manifest.pieces.push_back(parse_piece(piece, manifest, path));
  if (json.contains("hosts")) manifest.hosts = parse_hosts(json["hosts"], manifest, path);
  if (json.contains("origin") || json.contains("hosts")) {
    manifest.start = to_count(member(json, "start", path), path);
    manifest.origin = to_text(member(json, "origin", path), path);
    if (!is_safe_run_id(manifest.origin))
      corrupt(path, fmt::format("origin: \"{}\" is not accepted; it must be of the form [A-Za-z0-9._-]{{1,64}}",
                                printable(manifest.origin)));
  }
  return manifest;
}

namespace {

// Checks what only rank 0 fills in, so that no share has it. parse_run_state() checks the text of `state`.
void check_run(const Manifest& manifest, const std::string& path) {
  const auto refuse = [&](const char* field, const auto& value, std::string_view accepted) {
    corrupt(path, fmt::format("{}: {} is not accepted; it must be {}", field, value, accepted));
  };
  if (!is_safe_run_id(manifest.run_id))
    refuse("run_id", fmt::format("\"{}\"", printable(manifest.run_id)), "of the form [A-Za-z0-9._-]{1,64}");
  if (manifest.step > kMaxSteps) refuse("step", manifest.step, fmt::format("a whole number from 0 to {}", kMaxSteps));
  if (manifest.ranks < 1 || manifest.ranks > kMaxRanks)
    refuse("ranks", manifest.ranks, fmt::format("a whole number from 1 to {}", kMaxRanks));
}

}  // namespace

void check_config(const std::string& config, const std::string& path) {
  if (!config.empty() && !parse_strict(config, path + ": config").is_object())
    corrupt(path, fmt::format("config: \"{}\" is not accepted; it must be a JSON object", printable(config)));
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  Manifest manifest = parse_share(text, path);
  check_run(manifest, path);
  check_config(manifest.config, path);
  check_partition(manifest, path);
  return manifest;
}

void merge(Manifest& whole, Manifest share) {
  for (const auto& [name, tensor] : share.tensors) {
    const auto [known, added] = whole.tensors.emplace(name, tensor);
    if (!added && (known->second.dtype != tensor.dtype || !(known->second.shape == tensor.shape)))
      throw CheckpointError(
          ExitCode::CheckpointNotWritten,
          fmt::format("tensor \"{}\" is {} {} on one rank and {} {} on another", printable(name), name_of(known->second.dtype),
                      to_string(known->second.shape), name_of(tensor.dtype), to_string(tensor.shape)));
  }
  whole.files.merge(share.files);
  std::move(share.pieces.begin(), share.pieces.end(), std::back_inserter(whole.pieces));
}

void check_partition(const Manifest& manifest, const std::string& path) {
  std::map<std::string_view, std::vector<const StoredPiece*>> by_tensor;
  for (const StoredPiece& piece : manifest.pieces)
    if (piece.count > 0) by_tensor[piece.tensor].push_back(&piece);
  for (const auto& [name, tensor] : manifest.tensors) {
    auto& pieces = by_tensor[name];
    check_disjoint(pieces, path);
    int64_t stored = 0;
    for (const StoredPiece* piece : pieces) stored += piece->count;
    if (stored != tensor.shape.elements())
      corrupt(path,
              fmt::format("tensor \"{}\": {} of its {} elements are stored", printable(name), stored, tensor.shape.elements()));
  }
}

bool is_safe_name(std::string_view name) {
  const auto accepted = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 128 && name != "." && name != ".." && std::all_of(name.begin(), name.end(), accepted);
}

bool is_safe_run_id(std::string_view run_id) { return is_safe_name(run_id) && run_id.size() <= 64; }

std::string step_directory_name(int64_t step) { return fmt::format("step-{:08}", step); }

}  // namespace trivet::checkpoint
