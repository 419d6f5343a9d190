#include "engine/checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace trivet::checkpoint {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 22;

template <typename T>
double to_double(T value) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return static_cast<float>(value);
  else
    return static_cast<double>(value);
}

template <typename T>
void compare_values(std::span<const std::byte> first, std::span<const std::byte> second, TensorDifference& difference) {
  for (size_t at = 0; at < first.size(); at += sizeof(T)) {
    if (std::memcmp(&first[at], &second[at], sizeof(T)) == 0) continue;
    T a, b;
    std::memcpy(&a, &first[at], sizeof(T));
    std::memcpy(&b, &second[at], sizeof(T));
    const double distance = std::abs(to_double(a) - to_double(b));
    ++difference.different_elements;
    if (std::isnan(distance) || distance > difference.largest) difference.largest = distance;
  }
}

void compare_chunk(DType dtype, std::span<const std::byte> first, std::span<const std::byte> second,
                   TensorDifference& difference) {
  switch (dtype) {
    case DType::Int64: return compare_values<int64_t>(first, second, difference);
    case DType::Int32: return compare_values<int32_t>(first, second, difference);
    case DType::UInt16: return compare_values<uint16_t>(first, second, difference);
    case DType::UInt8: return compare_values<uint8_t>(first, second, difference);
    default: dispatch_float(dtype, [&]<typename T>() { compare_values<T>(first, second, difference); });
  }
}

std::vector<std::byte> read_chunk(const LoadedStep& step, const std::string& name, const TensorInfo& tensor, int64_t first,
                                  int64_t count) {
  std::vector<std::byte> data(count * size_of(tensor.dtype));
  const Piece piece = whole_box_piece(name, tensor.shape, first, {data.data(), tensor.dtype, {count}});
  step.read({&piece, 1});
  return data;
}

TensorDifference compare_tensor(const LoadedStep& first, const LoadedStep& second, const std::string& name) {
  const TensorInfo *const in_first = first.find(name), *const in_second = second.find(name);
  if (!in_second) return {name, Difference::OnlyInFirst};
  if (!in_first) return {name, Difference::OnlyInSecond};
  const TensorInfo& tensor = *in_first;
  if (tensor.dtype != in_second->dtype || !(tensor.shape == in_second->shape)) return {name, Difference::Type};
  TensorDifference difference{name};
  for (int64_t at = 0; at < tensor.shape.elements(); at += kChunkElements) {
    const int64_t count = std::min(kChunkElements, tensor.shape.elements() - at);
    const auto a = read_chunk(first, name, tensor, at, count), b = read_chunk(second, name, tensor, at, count);
    if (std::memcmp(a.data(), b.data(), a.size()) != 0) compare_chunk(tensor.dtype, a, b, difference);
  }
  if (difference.different_elements > 0) difference.kind = Difference::Values;
  return difference;
}

std::set<std::string> all_names(const LoadedStep& first, const LoadedStep& second) {
  std::set<std::string> names;
  for (const LoadedStep* step : {&first, &second})
    for (const auto& [name, tensor] : step->manifest().tensors) names.insert(name);
  return names;
}

}  // namespace

std::vector<TensorDifference> compare(const LoadedStep& first, const LoadedStep& second) {
  std::vector<TensorDifference> differences;
  for (const std::string& name : all_names(first, second)) differences.push_back(compare_tensor(first, second, name));
  return differences;
}

}  // namespace trivet::checkpoint
