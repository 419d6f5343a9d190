#include "engine/checkpoint/loaded_step.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/common_elements.h"
#include "engine/checkpoint/parallel.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/stored_pieces.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::checkpoint {
namespace {

constexpr int64_t kShardHeaderLimitBytes = 100'000'008;

// Bytes of a block of a stored piece that are copied to a wanted piece.
struct Copy {
  int64_t from = 0;  // from the start of the block
  std::byte* to = nullptr;
  int64_t bytes = 0;
};

struct BlockJob {
  size_t piece = 0, block = 0;
  std::vector<Copy> copies;
};

void add_copies(std::vector<BlockJob>& jobs, size_t piece, const CommonElements& common, int64_t element_bytes,
                std::byte* out) {
  int64_t from = common.from * element_bytes, left = common.count * element_bytes;
  out += common.to * element_bytes;
  while (left > 0) {
    const size_t block = from / kBlockBytes;
    const int64_t in_block = from % kBlockBytes, bytes = std::min(left, kBlockBytes - in_block);
    if (jobs.empty() || jobs.back().piece != piece || jobs.back().block != block) jobs.push_back({piece, block, {}});
    jobs.back().copies.push_back({in_block, out, bytes});
    from += bytes, out += bytes, left -= bytes;
  }
}

// Reports an error while reading as a damaged file, because it is the same to the caller.
template <typename Work>
void reading(Work&& work) {
  try {
    work();
  } catch (const FileError& error) {
    throw CheckpointError(ExitCode::CheckpointCorrupt, error.what());
  }
}

std::string identity_of(const SafetensorsHeader& header) {
  const auto value = [&](const char* key) {
    const auto found = header.metadata.find(key);
    return found == header.metadata.end() ? std::string("?") : printable(found->second);
  };
  return fmt::format("rank {} of step {} of run {}", value("trivet.rank"), value("trivet.step"), value("trivet.run_id"));
}

// Returns 200 for ".../step-00000200", and for the names of steps that a store has set aside (".old-step-00000200").
std::optional<int64_t> step_in_name(std::string directory) {
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  constexpr std::string_view kStep = "step-";
  const size_t at = directory.rfind(kStep);
  if (at == std::string::npos || directory.find('/', at) != std::string::npos) return std::nullopt;
  const char* const begin = directory.data() + at + kStep.size();
  const char* const end = directory.data() + directory.size();
  int64_t step = 0;
  const auto [parsed, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return step;
}

// Describes a file whose header is not the one in the manifest.
std::string describe_strange_header(std::string_view start, int64_t file_bytes, const std::string& path) {
  try {
    return "it is the file of " + identity_of(parse_safetensors_header(start, file_bytes, path));
  } catch (const CheckpointError&) {
    return "the header is damaged";
  }
}

}  // namespace

struct LoadedStep::Shard {
  std::string name;
  std::unique_ptr<ReadableFile> file;
  SafetensorsHeader header;
  std::vector<size_t> pieces;  // in the order of the header's tensors
};

LoadedStep::LoadedStep(LoadedStep&&) noexcept = default;
LoadedStep& LoadedStep::operator=(LoadedStep&&) noexcept = default;
LoadedStep::~LoadedStep() = default;

LoadedStep::LoadedStep(FileSystem& files, std::string directory, StepFiles which)
    : files_(&files), directory_(std::move(directory)) {
  reading([&] {
    const std::string path = directory_ + "/" + kManifestName;
    manifest_ = parse_manifest(read_text(files, path, kManifestLimitBytes), path);
    run_state_ = parse_run_state(manifest_.state, path + ": state");
    if (run_state_.steps != manifest_.step)
      corrupt(path,
              fmt::format("it is the manifest of step {}, but its state is that of step {}", manifest_.step, run_state_.steps));
    check_name(path);
    places_.resize(manifest_.pieces.size());
    for (const auto& [name, stored] : manifest_.files) open_shard(name, which);
  });
}

// If a run took a renamed step for a later one, it would never get beyond it. Names without a number are the user's own.
void LoadedStep::check_name(const std::string& path) const {
  const std::optional<int64_t> named = step_in_name(directory_);
  if (!named || *named == manifest_.step) return;
  const std::string own = step_directory_name(manifest_.step);
  const auto original = std::filesystem::path(directory_).parent_path() / own;
  corrupt(path, fmt::format("it is the manifest of step {}, but the directory is named step {}; {}", manifest_.step, *named,
                            files_->kind(original.string()) == EntryKind::Missing
                                ? "rename the directory back to " + own
                                : fmt::format("{} is there, too, so this is a copy: take it away", own)));
}

void LoadedStep::refuse_elsewhere(const std::string& name, const std::string& hosts) const {
  corrupt(directory_ + "/" + name,
          fmt::format("is not here; this step is spread over the directories of several hosts (checkpoint.replicas), and the "
                      "file was saved on {}; copy it from there",
                      hosts));
}

void LoadedStep::open_shard(const std::string& name, StepFiles which) {
  const StoredFile& stored = manifest_.files.at(name);
  const std::string path = directory_ + "/" + name;
  if (const std::string hosts = manifest_.hosts_of(name); !hosts.empty() && files_->kind(path) == EntryKind::Missing) {
    if (which == StepFiles::All) refuse_elsewhere(name, hosts);
    elsewhere_[name] = hosts;
    return;
  }
  auto shard = std::make_unique<Shard>(Shard{name, files_->open(path), {}, {}});
  if (shard->file->size() != stored.bytes)
    corrupt(path, fmt::format("the file has {} bytes, the manifest says {}", shard->file->size(), stored.bytes));
  if (stored.header_bytes < 8 || stored.header_bytes > std::min(stored.bytes, kShardHeaderLimitBytes))
    corrupt(path, fmt::format("the manifest says that its header has {} bytes", stored.header_bytes));
  std::string start(stored.header_bytes, '\0');
  shard->file->read_exactly(0, std::as_writable_bytes(std::span(start)));
  if (const uint32_t crc = crc32c(std::as_bytes(std::span(start))); crc != stored.header_crc32c)
    corrupt(path, fmt::format("header: crc32c {:08x}, expected {:08x}; {}", crc, stored.header_crc32c,
                              describe_strange_header(start, stored.bytes, path)));
  uint64_t json_bytes = 0;
  std::memcpy(&json_bytes, start.data(), 8);
  if (json_bytes != static_cast<uint64_t>(stored.header_bytes) - 8)
    corrupt(path, "the header does not have the size that the manifest says");
  shard->header = parse_safetensors_header(start, stored.bytes, path);
  check_entries(*shard);
  shards_.push_back(std::move(shard));
}

// Checks that every tensor of the file is a piece of the manifest, and vice versa.
void LoadedStep::check_entries(Shard& shard) {
  const std::string path = directory_ + "/" + shard.name;
  std::map<std::string_view, size_t> pieces;
  for (size_t i = 0; i < manifest_.pieces.size(); ++i)
    if (manifest_.pieces[i].file == shard.name && !pieces.emplace(manifest_.pieces[i].entry, i).second)
      corrupt(path, fmt::format("the manifest names tensor \"{}\" twice", printable(manifest_.pieces[i].entry)));
  for (const TensorEntry& entry : shard.header.tensors) {
    const auto found = pieces.find(entry.name);
    if (found == pieces.end()) corrupt(path, fmt::format("tensor \"{}\" is not in the manifest", printable(entry.name)));
    const StoredPiece& piece = manifest_.pieces[found->second];
    const TensorInfo& tensor = manifest_.tensors.at(piece.tensor);
    if (entry.dtype != tensor.dtype || entry.shape.elements() != piece.count)
      corrupt(path, fmt::format("tensor \"{}\" is {} {}, the manifest says {} elements of {}", printable(entry.name),
                                name_of(entry.dtype), to_string(entry.shape), piece.count, name_of(tensor.dtype)));
    places_[found->second] = {&shard, shard.header.data_start + entry.begin};
    shard.pieces.push_back(found->second);
  }
  if (shard.pieces.size() != pieces.size())
    corrupt(path, fmt::format("{} tensors, the manifest says {}", shard.pieces.size(), pieces.size()));
}

const TensorInfo* LoadedStep::find(const std::string& name) const {
  const auto found = manifest_.tensors.find(name);
  return found == manifest_.tensors.end() ? nullptr : &found->second;
}

void LoadedStep::check_wanted(const Piece& piece) const {
  check_stored(*this, piece);
  if (piece.staged) throw std::logic_error(fmt::format("checkpoint: wanted piece of \"{}\" has no memory", piece.name));
  if (piece.data.elements() != piece.count || piece.first < 0 || piece.first + piece.count > piece.box_shape.elements())
    throw std::logic_error(
        fmt::format("checkpoint: wanted piece of \"{}\": {} elements of memory for elements {} + {} of a box {}", piece.name,
                    piece.data.elements(), piece.first, piece.count, to_string(piece.box_shape)));
}

void LoadedStep::read(std::span<const Piece> wanted, int threads) const {
  for (const Piece& piece : wanted) check_wanted(piece);
  std::map<std::string_view, std::vector<size_t>> stored;
  for (size_t i = 0; i < manifest_.pieces.size(); ++i) stored[manifest_.pieces[i].tensor].push_back(i);

  std::vector<BlockJob> jobs;
  for (const Piece& piece : wanted) {
    int64_t covered = 0;
    for (size_t i : stored[piece.name])
      for (const CommonElements& common : common_elements(piece.shape, region_of(manifest_.pieces[i]), region_of(piece))) {
        add_copies(jobs, i, common, size_of(piece.data.dtype), static_cast<std::byte*>(piece.data.data));
        covered += common.count;
      }
    if (covered != piece.count)
      corrupt(directory_, fmt::format("tensor \"{}\" {}: {} of {} wanted elements are stored", piece.name,
                                      to_string(piece.shape), covered, piece.count));
  }
  run_jobs(jobs.size(), threads, [&](size_t index) {
    const BlockJob& job = jobs[index];
    const int64_t begin = static_cast<int64_t>(job.block) * kBlockBytes;
    const StoredPiece& piece = manifest_.pieces[job.piece];
    if (!places_[job.piece].shard) refuse_elsewhere(piece.file, elsewhere_.at(piece.file));
    const int64_t piece_bytes = piece.count * size_of(manifest_.tensors.at(piece.tensor).dtype);
    std::vector<std::byte> data(std::min(kBlockBytes, piece_bytes - begin));
    reading([&] { places_[job.piece].shard->file->read_exactly(places_[job.piece].offset + begin, data); });
    check_block(job.piece, job.block, data);
    for (const Copy& copy : job.copies) std::memcpy(copy.to, data.data() + copy.from, copy.bytes);
  });
}

void LoadedStep::check_block(size_t piece, size_t block, std::span<const std::byte> data) const {
  const StoredPiece& stored = manifest_.pieces[piece];
  const uint32_t crc = crc32c(data), expected = stored.block_crc32c[block];
  if (crc != expected)
    corrupt(directory_ + "/" + stored.file, fmt::format("block {} (tensor \"{}\"): crc32c {:08x}, expected {:08x}", block,
                                                        printable(stored.tensor), crc, expected));
}

void LoadedStep::verify(int part, int parts, int threads) const {
  std::vector<const Shard*> mine;
  for (size_t i = part; i < shards_.size(); i += parts) mine.push_back(shards_[i].get());
  run_jobs(mine.size(), threads, [&](size_t i) { reading([&] { verify_shard(*mine[i]); }); });
}

void LoadedStep::verify_shard(const Shard& shard) const {
  alignas(64) XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  std::vector<std::byte> buffer(kBlockBytes);
  const auto read = [&](int64_t offset, int64_t bytes) {
    const std::span data(buffer.data(), static_cast<size_t>(std::min(bytes, kBlockBytes)));
    shard.file->read_exactly(offset, data);
    XXH3_64bits_update(&hash, data.data(), data.size());
    return data;
  };
  uint32_t header_crc = 0;
  for (int64_t at = 0; at < shard.header.data_start; at += kBlockBytes)
    header_crc = crc32c(read(at, shard.header.data_start - at), header_crc);
  const StoredFile& stored = manifest_.files.at(shard.name);
  if (header_crc != stored.header_crc32c)
    corrupt(directory_ + "/" + shard.name,
            fmt::format("header: crc32c {:08x}, expected {:08x}", header_crc, stored.header_crc32c));
  for (size_t i = 0; i < shard.pieces.size(); ++i) {
    const TensorEntry& entry = shard.header.tensors[i];
    for (int64_t at = entry.begin; at < entry.end; at += kBlockBytes)
      check_block(shard.pieces[i], (at - entry.begin) / kBlockBytes, read(shard.header.data_start + at, entry.end - at));
  }
  if (const uint64_t xxh3 = XXH3_64bits_digest(&hash); xxh3 != stored.xxh3)
    corrupt(directory_ + "/" + shard.name, fmt::format("xxh3 {:016x} of the whole file, expected {:016x}", xxh3, stored.xxh3));
}

void refuse_embedded(const LoadedStep& step, const std::string& key) {
  if (step.run_id() != kEmbeddedRunId) return;
  throw ConfigError(
      fmt::format("{}: {} was saved by a trainer that has a model of its own and embeds Trivet; load it in that "
                  "trainer (`trivet checkpoint show` lists its tensors)",
                  key, printable(step.directory())));
}

}  // namespace trivet::checkpoint
