#include "engine/checkpoint/shard_file.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/finite.h"
#include "engine/checkpoint/safetensors.h"
#include "zero/staging.h"

namespace trivet::checkpoint {
namespace {

class HashingFile {
 public:
  explicit HashingFile(WritableFile& file) : file_(file) { XXH3_64bits_reset(&state_); }
  void write(std::span<const std::byte> data) {
    XXH3_64bits_update(&state_, data.data(), data.size());
    file_.write(data);
    bytes_ += static_cast<int64_t>(data.size());
  }
  uint64_t hash() const { return XXH3_64bits_digest(&state_); }
  int64_t bytes() const { return bytes_; }

 private:
  WritableFile& file_;
  alignas(64) XXH3_state_t state_;
  int64_t bytes_ = 0;
};

bool is_whole_tensor(const Piece& piece) { return piece.box_shape == piece.shape && piece.count == piece.shape.elements(); }

void check_piece(const Piece& piece) {
  if (piece.data.elements() != piece.count || piece.first < 0 || piece.first + piece.count > piece.box_shape.elements())
    throw std::logic_error(fmt::format("checkpoint: piece of \"{}\": {} elements of data, elements {} + {} of a box {}",
                                       piece.name, piece.data.elements(), piece.first, piece.count,
                                       to_string(piece.box_shape)));
}

using Entries = std::map<std::string, const Piece*>;

std::string entry_name(const Piece& piece, const Entries& taken) {
  if (is_whole_tensor(piece) && !taken.contains(piece.name)) return piece.name;
  for (int k = 0;; ++k)
    if (std::string name = fmt::format("{}#{}", piece.name, k); !taken.contains(name)) return name;
}

// Maps the names of entries to their pieces. Empty pieces of a tensor that is not empty are not stored.
Entries name_entries(std::span<const Piece> pieces) {
  Entries entries;
  for (const Piece& piece : pieces) {
    check_piece(piece);
    if (piece.count > 0 || is_whole_tensor(piece)) entries.emplace(entry_name(piece, entries), &piece);
  }
  return entries;
}

SafetensorsHeader make_header(const Entries& entries, const ShardIdentity& identity) {
  SafetensorsHeader header;
  header.metadata = {{"trivet.run_id", identity.run_id},
                     {"trivet.step", std::to_string(identity.step)},
                     {"trivet.rank", std::to_string(identity.rank)}};
  for (const auto& [name, piece] : entries)
    header.tensors.push_back({name, piece->data.dtype, is_whole_tensor(*piece) ? piece->shape : Shape{piece->count}, 0, 0});
  return header;
}

// Called while the block is in the cache for its checksum.
void check_finite(ConstTensorView block, const Piece& piece, int64_t first, int rank) {
  const int64_t element = first_not_finite(block, piece.used_as);
  if (element < 0) return;
  throw NumericsError(fmt::format("{} on rank {} is no longer finite: element {} is {}", piece.name, rank,
                                  piece.first + first + element, not_finite_value(block, element, piece.used_as)));
}

// `reader` reads pieces that have no memory.
std::vector<uint32_t> write_blocks(HashingFile& file, const Piece& piece, zero::StagedTensorReader& reader, int rank) {
  std::vector<uint32_t> checksums;
  const int64_t block_elements = kBlockBytes / size_of(piece.data.dtype);
  for (int64_t done = 0; done < piece.count; done += block_elements) {
    const int64_t count = std::min(block_elements, piece.count - done);
    const ConstTensorView data = piece.staged ? reader.read(*piece.staged, piece.staged_first + done, count)
                                              : ConstTensorView(piece.data.slice(done, count));
    const std::span block(static_cast<const std::byte*>(data.data), static_cast<size_t>(data.bytes()));
    check_finite(data, piece, done, rank);
    checksums.push_back(crc32c(block));
    file.write(block);
  }
  return checksums;
}

}  // namespace

std::string shard_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

Manifest write_shard(FileSystem& files, const std::string& directory, const ShardIdentity& identity,
                     std::span<const Piece> pieces) {
  const Entries entries = name_entries(pieces);
  SafetensorsHeader header = make_header(entries, identity);
  const std::string start = layout_safetensors(header);
  const int64_t data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
  const std::string name = shard_file_name(identity.rank);

  const auto output = files.create(directory + "/" + name, header.data_start + data_bytes);
  HashingFile file(*output);
  Manifest share;
  zero::StagedTensorReader reader;
  for (const Piece& piece : pieces) share.tensors[piece.name] = {piece.data.dtype, piece.shape};
  file.write(std::as_bytes(std::span(start)));
  for (const TensorEntry& entry : header.tensors) {
    const Piece& piece = *entries.at(entry.name);
    share.pieces.push_back({piece.name, name, entry.name, piece.box_start, piece.box_shape, piece.first, piece.count,
                            write_blocks(file, piece, reader, identity.rank)});
  }
  output->sync();
  output->close();
  share.files[name] = {file.bytes(), header.data_start, crc32c(std::as_bytes(std::span(start))), file.hash()};
  return share;
}

}  // namespace trivet::checkpoint
