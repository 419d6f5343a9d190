#include "interchange/foreign/tensor_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/printable.h"
#include "data/hash.h"
#include "engine/checkpoint/common_elements.h"
#include "engine/checkpoint/stored_pieces.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::foreign {

using checkpoint::corrupt, checkpoint::Piece, checkpoint::TensorInfo;
namespace {

constexpr int64_t kConvertedAtOnce = int64_t{1} << 18;  // elements
constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr int64_t kBlock = 32, kBlockBytes = kBlock / 2;  // elements of MXFP4 with one scale

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

// Reads [first, first + count) of a tensor in MXFP4.
void read_mxfp4(const Run& blocks, const Run& scales, int64_t first, int64_t count, float* to) {
  constexpr std::array<float, 16> kValues{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};
  constexpr int kBias = 127, kNoNumber = 255;
  std::vector<uint8_t> bytes, exponents;
  std::vector<float> factors;
  for (int64_t done = 0; done < count;) {
    const int64_t begin = (first + done) / kBlock, some = std::min(kConvertedAtOnce, first + count - begin * kBlock);
    const int64_t whole = (some + kBlock - 1) / kBlock, skipped = first + done - begin * kBlock;
    bytes.resize(static_cast<size_t>(whole * kBlockBytes));
    exponents.resize(static_cast<size_t>(whole));
    blocks.file->read_exactly(blocks.offset_bytes + begin * kBlockBytes, std::as_writable_bytes(std::span(bytes)));
    scales.file->read_exactly(scales.offset_bytes + begin, std::as_writable_bytes(std::span(exponents)));
    factors.clear();
    for (const uint8_t exponent : exponents)
      factors.push_back(exponent == kNoNumber ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, exponent - kBias));
    for (int64_t i = skipped; i < some; ++i) {
      const int bits = bytes[static_cast<size_t>(i / 2)] >> (i % 2 * 4);
      to[done++] = kValues[static_cast<size_t>(bits & 15)] * factors[static_cast<size_t>(i / kBlock)];
    }
  }
}

// Calls use(element of the tensor, element of the run in its file, count) for each part of the run that is in [begin, end).
template <typename Use>
void for_each_overlap(const Run& run, int64_t begin, int64_t end, Use&& use) {
  for (int64_t i = run.step > 0 ? std::max<int64_t>(0, (begin - run.first) / run.step) : 0; i < run.repeats; ++i) {
    const int64_t at = run.first + i * run.step;
    if (at >= end) return;
    const int64_t from = std::max(begin, at), count = std::min(end, at + run.elements) - from;
    if (count > 0) use(from, i * run.file_step + from - at, count);
  }
}

}  // namespace

const ReadableFile& TensorFiles::keep(std::unique_ptr<ReadableFile> file) { return *files_.emplace_back(std::move(file)); }

void TensorFiles::add(const std::string& name, DType stored, const Shape& shape, std::vector<Run> runs) {
  int64_t elements = 0;
  for (Run& run : runs) {
    if (run.elements == 0) run.elements = shape.elements();
    elements += run.elements * run.repeats;
  }
  if (elements != shape.elements()) throw std::logic_error("tensor files: the runs of " + name + " do not fill it");
  const DType shown = is_read_as_float(stored) ? DType::Float32 : stored;
  const ReadableFile& file = *runs.front().file;
  const auto [at, is_new] = tensors_.try_emplace(name, Place{stored, {shown, shape}, std::move(runs)});
  if (!is_new)
    corrupt(printable(file.path()),
            fmt::format("tensor \"{}\" is in \"{}\", too", printable(name), printable(at->second.runs.front().file->path())));
}

void TensorFiles::add_alias(const std::string& name, const std::string& tensor) {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) tensors_.try_emplace(name, Place(found->second));
}

void TensorFiles::make_matrix(const std::string& name) {
  Shape& shape = tensors_.at(name).info.shape;
  shape = {shape.rows(), shape.cols()};
}

std::set<std::string> TensorFiles::join_mxfp4() {
  std::set<std::string> joined;
  for (const std::string& name : names())
    for (const auto& [ending, other_ending] : {std::pair(kBlocks, kScales), std::pair(kScales, kBlocks)}) {
      if (!name.ends_with(ending)) continue;
      const std::string whole = name.substr(0, name.size() - ending.size()), other = whole + std::string(other_ending);
      if (joined.contains(whole)) continue;
      if (!find(other))
        throw CheckpointError(ExitCode::Usage, fmt::format("{} is one of two tensors of MXFP4, and \"{}\" is absent",
                                                           origin(name, 0), printable(other)));
      join_mxfp4(whole);
      joined.insert(whole);
    }
  return joined;
}

void TensorFiles::join_mxfp4(const std::string& name) {
  const auto blocks = tensors_.find(name + std::string(kBlocks)), scales = tensors_.find(name + std::string(kScales));
  const Shape of_blocks = blocks->second.info.shape, of_scales = scales->second.info.shape;
  const int last = static_cast<int>(of_blocks.dims()) - 1;
  bool fits =
      last >= 1 && of_blocks[last] == kBlockBytes && of_scales.dims() == of_blocks.dims() - 1 && of_scales.elements() > 0;
  for (int dim = 0; fits && dim < last; ++dim) fits = of_blocks[dim] == of_scales[dim];
  for (const Place* place : {&blocks->second, &scales->second})
    fits = fits && place->stored == DType::UInt8 && place->runs.size() == 1 && place->runs.front().repeats == 1;
  if (!fits)
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{} {} {} and its scales {} {} are not MXFP4: bytes [.., N, {}] and bytes [.., N]",
                                      origin(blocks->first, 0), name_of(blocks->second.stored), to_string(of_blocks),
                                      name_of(scales->second.stored), to_string(of_scales), kBlockBytes));
  Shape shape = of_scales;
  shape[last - 1] *= kBlock;
  add(name, DType::UInt8, of_blocks, blocks->second.runs);
  Place& place = tensors_.at(name);
  place.info = {DType::Float32, shape};
  place.scales = scales->second.runs;
  tensors_.erase(blocks);
  tensors_.erase(scales);
}

void TensorFiles::remove_wrapper() {
  for (const std::string_view wrapper : {"module._orig_mod.", "_orig_mod.module.", "module.", "_orig_mod."}) {
    if (!std::ranges::all_of(tensors_, [&](const auto& one) { return one.first.starts_with(wrapper); })) continue;
    std::map<std::string, Place> unwrapped;
    for (auto& [name, place] : tensors_) unwrapped.emplace(name.substr(wrapper.size()), std::move(place));
    tensors_ = std::move(unwrapped);
    return;
  }
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

const ReadableFile* TensorFiles::file_of(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.runs.front().file;
}

bool TensorFiles::share_elements(const std::string& one, const std::string& other) const {
  const auto a = tensors_.find(one), b = tensors_.find(other);
  return a != tensors_.end() && b != tensors_.end() && a->second.stored == b->second.stored && a->second.runs == b->second.runs;
}

std::string TensorFiles::origin(const std::string& name, int64_t row) const {
  const ReadableFile* const file = file_of(name);
  return file ? fmt::format("tensor \"{}\" of {}", printable(name), printable(file->path())) : TensorSource::origin(name, row);
}

uint64_t TensorFiles::digest() const {
  data::StreamingHash hash;
  for (const auto& [name, place] : tensors_) {
    hash.add(fmt::format("{} {} {}", name, name_of(place.stored), to_string(place.info.shape)));
    for (const std::vector<Run>* runs : {&place.runs, &place.scales})
      for (const Run& run : *runs) {
        const std::string& path = run.file->path();
        hash.add(fmt::format(" {} {} {}", path.substr(path.rfind('/') + 1), run.offset_bytes, run.first));
      }
    hash.add(";");
  }
  return hash.value();
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
  for (const auto& part : checkpoint::common_elements(piece.shape, region_of(whole), region_of(piece))) {
    if (!place.scales.empty()) {
      read_mxfp4(place.runs[0], place.scales[0], part.from, part.count, piece.data.as<float>() + part.to);
      continue;
    }
    for (const Run& run : place.runs) {
      const auto read = [&](int64_t from, int64_t in_run, int64_t count) {
        read_elements(*run.file, run.offset_bytes + in_run * size_of(place.stored), place.stored, count,
                      to + (part.to + from - part.from) * size_of(piece.data.dtype), piece.data.dtype);
      };
      for_each_overlap(run, part.from, part.from + part.count, read);
    }
  }
}

}  // namespace trivet::foreign
