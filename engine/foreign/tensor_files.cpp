#include "engine/foreign/tensor_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/printable.h"
#include "engine/checkpoint/common_elements.h"
#include "engine/checkpoint/stored_pieces.h"
#include "engine/checkpoint/strict_json.h"
#include "engine/data/hash.h"

namespace trivet::foreign {

using checkpoint::corrupt, checkpoint::Piece, checkpoint::TensorInfo;
namespace {

constexpr int64_t kConvertedAtOnce = int64_t{1} << 18;  // elements

bool is_read_as_float(DType dtype) { return dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16; }

template <typename T>
void widen(const std::byte* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(static_cast<void*>(&value), from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    to[i] = static_cast<float>(value);
  }
}

void read_elements(const ReadableFile& file, int64_t offset, DType stored, int64_t count, std::byte* to, DType wanted) {
  const int64_t size = size_of(stored);
  if (stored == wanted) return file.read_exactly(offset, {to, static_cast<size_t>(count * size)});
  std::vector<std::byte> memory(std::min(count, kConvertedAtOnce) * size);
  for (int64_t done = 0; done < count; done += kConvertedAtOnce) {
    const int64_t some = std::min(kConvertedAtOnce, count - done);
    file.read_exactly(offset + done * size, {memory.data(), static_cast<size_t>(some * size)});
    float* const out = reinterpret_cast<float*>(to) + done;
    stored == DType::BFloat16 ? widen<bfloat16>(memory.data(), some, out) : widen<float16>(memory.data(), some, out);
  }
}

}  // namespace

const ReadableFile& TensorFiles::keep(std::unique_ptr<ReadableFile> file) { return *files_.emplace_back(std::move(file)); }

void TensorFiles::add(const std::string& name, DType stored, const Shape& shape, std::vector<Run> runs) {
  Place place{stored, {is_read_as_float(stored) ? DType::Float32 : stored, shape}, std::move(runs), {}};
  int64_t elements = 0;
  for (const Run& run : place.runs) {
    place.first.push_back(elements);
    elements += run.count;
  }
  if (elements != shape.elements()) throw std::logic_error("tensor files: the runs of " + name + " are not its elements");
  const std::string where = place.runs.empty() ? source_ : place.runs.front().file->path();
  if (!tensors_.try_emplace(name, std::move(place)).second)
    corrupt(printable(where), fmt::format("tensor \"{}\" is there twice", printable(name)));
}

void TensorFiles::add_alias(const std::string& name, const std::string& tensor) {
  const Place place = tensors_.at(tensor);
  add(name, place.stored, place.info.shape, place.runs);
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

std::string TensorFiles::digest() const {
  data::StreamingHash hash;
  for (const auto& [name, place] : tensors_) {
    hash.add(fmt::format("{} {} {}", name, name_of(place.stored), to_string(place.info.shape)));
    for (const Run& run : place.runs) {
      const std::string& path = run.file->path();
      hash.add(fmt::format(" {} {} {}", path.substr(path.rfind('/') + 1), run.offset_bytes, run.count));
    }
    hash.add(";");
  }
  return fmt::format("xxh3 {}", data::hexadecimal(hash.value()));
}

const TensorInfo* TensorFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.info;
}

void TensorFiles::read(std::span<const Piece> wanted) const {
  for (const Piece& piece : wanted) check_stored(*this, piece);
  reading_files("was the file changed while it was read?", [&] {
    for (const Piece& piece : wanted) read_piece(tensors_.at(piece.name), piece);
  });
}

void TensorFiles::read_piece(const Place& place, const Piece& piece) const {
  const Piece whole =
      checkpoint::whole_box_piece(piece.name, piece.shape, 0, {nullptr, piece.data.dtype, {piece.shape.elements()}});
  auto* const to = static_cast<std::byte*>(piece.data.data);
  const int64_t size = size_of(place.stored), wanted_size = size_of(piece.data.dtype);
  for (const auto& part : checkpoint::common_elements(piece.shape, region_of(whole), region_of(piece))) {
    size_t index = std::ranges::upper_bound(place.first, part.from) - place.first.begin() - 1;
    for (int64_t done = 0; done < part.count; ++index) {
      const Run& run = place.runs[index];
      const int64_t skipped = part.from + done - place.first[index], some = std::min(part.count - done, run.count - skipped);
      read_elements(*run.file, run.offset_bytes + skipped * size, place.stored, some, to + (part.to + done) * wanted_size,
                    piece.data.dtype);
      done += some;
    }
  }
}

}  // namespace trivet::foreign
