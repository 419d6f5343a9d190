#include "interchange/foreign/pt_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/strict_json.h"
#include "interchange/foreign/other_content.h"

namespace trivet::foreign {

using checkpoint::corrupt;
namespace {

constexpr const char* kPickle = "data.pkl";
constexpr const char* kTensor = "torch._utils._rebuild_tensor_v2";
constexpr const char* kParameter = "torch._utils._rebuild_parameter";
constexpr const char* kWithAttributes = "torch._tensor._rebuild_from_type_v2";  // a tensor that somebody gave attributes
constexpr int64_t kMostElements = int64_t{1} << 62;

struct StorageType {
  std::string_view name;
  DType dtype;
};
// The types of storages. Those that no weight can have are only told apart by their size.
constexpr std::array<StorageType, 10> kStorageTypes{{{"torch.FloatStorage", DType::Float32},
                                                     {"torch.BFloat16Storage", DType::BFloat16},
                                                     {"torch.HalfStorage", DType::Float16},
                                                     {"torch.DoubleStorage", DType::Float64},
                                                     {"torch.LongStorage", DType::Int64},
                                                     {"torch.IntStorage", DType::Int32},
                                                     {"torch.ShortStorage", DType::UInt16},
                                                     {"torch.CharStorage", DType::UInt8},
                                                     {"torch.ByteStorage", DType::UInt8},
                                                     {"torch.BoolStorage", DType::UInt8}}};

// Row-major, without holes. The stride of a dim of one element does not matter.
bool is_contiguous(const Shape& shape, const PickleValue& strides) {
  int64_t expected = 1;
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    const PickleValue& stride = *strides.items[static_cast<size_t>(dim)];
    if (!stride.is(PickleKind::Int)) return false;
    if (shape[dim] != 1 && stride.number != expected) return false;
    expected *= shape[dim];
  }
  return true;
}

}  // namespace

PtFile::PtFile(const ReadableFile& file, AcceptedNames names) : file_(file), path_(printable(file.path())) {
  if (!is_zip(file)) {
    refuse_other_content(file, "a file of torch.save");
    throw CheckpointError(
        ExitCode::Usage,
        path_ + ": is no zip archive, as torch.save makes since torch 1.6; save the file again with a newer torch");
  }
  entries_ = read_zip_directory(file);
  for (const auto& [name, entry] : entries_)
    if (name.ends_with(std::string("/") + kPickle) && std::ranges::count(name, '/') == 1) {
      if (!folder_.empty()) corrupt(path_, "has two pickles");
      folder_ = name.substr(0, name.find('/') + 1);
    }
  if (folder_.empty()) corrupt(path_, "has no data.pkl; is it a file of torch.save?");
  if (entries_.contains(folder_ + "byteorder") && text_of("byteorder", 16) != "little")
    throw CheckpointError(ExitCode::Usage, path_ + ": is big-endian; only little-endian files are accepted");
  pickle_.emplace(text_of(kPickle, kPickleLimitBytes), path_, names);
}

std::string PtFile::text_of(const std::string& entry, int64_t limit_bytes) const {
  const ZipEntry& found = entries_.at(folder_ + entry);
  if (found.bytes > limit_bytes)
    corrupt(path_, fmt::format("its {} has {} bytes; at most {} are accepted", entry, found.bytes, limit_bytes));
  std::string text(static_cast<size_t>(found.bytes), '\0');
  file_.read_exactly(found.offset, std::as_writable_bytes(std::span(text)));
  if (::crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()) != found.crc32)
    corrupt(path_, fmt::format("its {} does not have the checksum that the archive names", entry));
  return text;
}

void PtFile::refuse(std::string_view what) const { corrupt(path_, what); }

const PickleValue& PtFile::member(const PickleValue& dict, std::string_view key) const {
  const PickleValue* const found = find_member(dict, key);
  if (!found) refuse(fmt::format("\"{}\" is absent", key));
  return *found;
}

int64_t PtFile::count(const PickleValue& value, std::string_view what) const {
  if (!value.is(PickleKind::Int) || value.number < 0 || value.number > kMostElements)
    refuse(fmt::format("{} is not a number from 0 to 2^62", what));
  return value.number;
}

Shape PtFile::shape(const PickleValue& value, std::string_view what) const {
  if (!value.is(PickleKind::Tuple) || value.items.size() > Shape::kMaxDims)
    refuse(fmt::format("{} is not the shape of a tensor; at most {} dims are accepted", what, Shape::kMaxDims));
  std::array<int64_t, Shape::kMaxDims> dims{};
  int64_t elements = 1;
  for (size_t i = 0; i < value.items.size(); ++i) {
    dims[i] = count(*value.items[i], what);
    if (__builtin_mul_overflow(elements, std::max<int64_t>(1, dims[i]), &elements) || elements > kMostElements)
      refuse(fmt::format("{} is too large", what));
  }
  return Shape(std::span<const int64_t>(dims.data(), value.items.size()));
}

bool PtFile::is_tensor(const PickleValue& value) {
  return value.is_object(kTensor) || value.is_object(kParameter) || value.is_object(kWithAttributes);
}

const std::vector<const PickleValue*>* PtFile::tensor_arguments(const PickleValue& value) {
  if (value.is_object(kTensor)) return &value.items;
  if (value.is_object(kParameter) && !value.items.empty() && value.items[0]->is_object(kTensor)) return &value.items[0]->items;
  if (!value.is_object(kWithAttributes) || value.items.size() < 3) return nullptr;
  const PickleValue &function = *value.items[0], &arguments = *value.items[2];
  return function.is(PickleKind::Name) && function.text == kTensor && arguments.is(PickleKind::Tuple) ? &arguments.items
                                                                                                      : nullptr;
}

PtTensor PtFile::tensor(const PickleValue& value, std::string_view name) const {
  const std::string what = fmt::format("tensor \"{}\"", printable(name));
  const std::vector<const PickleValue*>* const arguments = tensor_arguments(value);
  if (!arguments || arguments->size() < 4) refuse(what + " is no tensor");
  const PickleValue& storage = *(*arguments)[0];
  if (!storage.is_object(kStorageObject) || storage.items.size() < 5 || !storage.items[1]->is(PickleKind::Name) ||
      !storage.items[2]->is(PickleKind::Text))
    refuse(what + " has no storage");
  const std::string_view type = storage.items[1]->text;
  const auto known = std::ranges::find(kStorageTypes, type, &StorageType::name);
  if (known == kStorageTypes.end()) refuse(fmt::format("{} has a storage of the type \"{}\"", what, printable(type)));
  const auto entry = entries_.find(fmt::format("{}data/{}", folder_, storage.items[2]->text));
  if (entry == entries_.end()) refuse(fmt::format("{}: its storage \"{}\" is absent", what, printable(storage.items[2]->text)));
  const int64_t size = size_of(known->dtype), stored = count(*storage.items[4], what + ": the size of its storage");
  if (entry->second.bytes % size != 0 || entry->second.bytes / size != stored)
    refuse(fmt::format("{}: its storage has {} bytes, {} elements of {} bytes were announced", what, entry->second.bytes,
                       stored, size));
  PtTensor tensor{known->dtype, shape(*(*arguments)[2], what + ": its size"), {}};
  const int64_t first = count(*(*arguments)[1], what + ": its offset"), elements = tensor.shape.elements();
  if (elements > stored || first > stored - elements)
    refuse(fmt::format("{}: elements {} to {} are not in its storage of {}", what, first, first + elements, stored));
  const PickleValue& strides = *(*arguments)[3];
  if (!strides.is(PickleKind::Tuple) || strides.items.size() != static_cast<size_t>(tensor.shape.dims()))
    refuse(what + ": its strides do not fit its size");
  if (elements > 1 && !is_contiguous(tensor.shape, strides))
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{}: {} is not stored row by row (a transposed or expanded view); save its "
                                      "contiguous() instead",
                                      path_, what));
  tensor.run = {&file_, entry->second.offset + first * size};
  return tensor;
}

std::vector<std::pair<std::string, PtTensor>> PtFile::tensors(const PickleValue& dict) const {
  std::vector<std::pair<std::string, PtTensor>> found;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (const PickleValue& key = *dict.items[i]; key.is(PickleKind::Text) && is_tensor(*dict.items[i + 1]))
      found.emplace_back(key.text, tensor(*dict.items[i + 1], key.text));
  return found;
}

void add_state_dict(const PtFile& file, TensorFiles& to) {
  const PickleValue* dict = &file.root();
  for (const char* key : {"state_dict", "model_state_dict", "model", "module"})
    if (const PickleValue* const inner = find_member(file.root(), key); inner && inner->is(PickleKind::Dict)) {
      dict = inner;
      break;
    }
  if (!dict->is(PickleKind::Dict)) file.refuse("is no dict of tensors; save model.state_dict()");
  for (const auto& [name, tensor] : file.tensors(*dict)) to.add(name, tensor.dtype, tensor.shape, tensor.run);
}

}  // namespace trivet::foreign
