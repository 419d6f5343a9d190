// Reads all of a safetensors file, as doubles. It is for golden files only, because it trusts what it reads.
//
//   8 bytes little-endian header length | JSON: name -> {"dtype", "shape", "data_offsets"} | data
#pragma once

#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/shape.h"

namespace trivet::model {

struct GoldenTensor {
  Shape shape;
  std::vector<double> values;
};

template <typename T>
std::vector<double> as_doubles(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return {values.begin(), values.end()};
}

inline std::vector<double> decode(const std::string& dtype, const std::string& bytes) {
  if (dtype == "F32") return as_doubles<float>(bytes);
  if (dtype == "F64") return as_doubles<double>(bytes);
  if (dtype == "I32") return as_doubles<int32_t>(bytes);
  throw std::runtime_error("golden file: dtype " + dtype);
}

inline Shape parse_shape(const std::string& text) {
  std::vector<int64_t> dims;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) dims.push_back(std::stoll(item));
  return Shape(dims);
}

inline std::map<std::string, GoldenTensor> read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (content.size() < 8) throw std::runtime_error("golden file: cannot read " + path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, content.data(), 8);
  const std::string header = content.substr(8, header_bytes);
  const std::regex entry(R"re("([^"]+)"\s*:\s*\{\s*"dtype"\s*:\s*"(\w+)"\s*,\s*"shape"\s*:\s*\[([^\]]*)\]\s*,)re"
                         R"re(\s*"data_offsets"\s*:\s*\[\s*(\d+)\s*,\s*(\d+)\s*\])re");
  std::map<std::string, GoldenTensor> tensors;
  for (std::sregex_iterator match(header.begin(), header.end(), entry), end; match != end; ++match) {
    const std::smatch& m = *match;
    const size_t begin = std::stoull(m[4]), finish = std::stoull(m[5]);
    tensors[m[1]] = {parse_shape(m[3]), decode(m[2], content.substr(8 + header_bytes + begin, finish - begin))};
  }
  return tensors;
}

}  // namespace trivet::model
