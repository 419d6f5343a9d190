#include "hvd/request.h"

#include "hvd/bytes.h"

namespace trivet::hvd {
namespace {

template <typename Enum>
Enum read_enum(ByteReader& in) {
  const auto value = static_cast<Enum>(in.number<uint8_t>());
  if (name_of(value) == "?") ByteReader::refuse();
  return value;
}

int64_t read_size(ByteReader& in) {
  const auto value = in.number<int64_t>();
  if (value < 0) ByteReader::refuse();
  return value;
}

}  // namespace

DType wire_dtype(const Request& request) {
  const bool wide = request.dtype == DType::Float32 || request.dtype == DType::Float64;
  if (!wide || request.compression == Compression::None) return request.dtype;
  return request.compression == Compression::Fp16 ? DType::Float16 : DType::BFloat16;
}

std::string encode(const Request& request) {
  std::string bytes;
  append_text(bytes, request.name);
  append(bytes, request.collective);
  append(bytes, request.dtype);
  append(bytes, request.op);
  append(bytes, request.compression);
  append(bytes, request.prescale_factor);
  append(bytes, request.postscale_factor);
  append(bytes, int32_t{request.root});
  append(bytes, static_cast<uint8_t>(request.shape.dims()));
  for (int64_t dim : request.shape.span()) append(bytes, dim);
  append(bytes, static_cast<uint32_t>(request.splits.size()));
  for (int64_t rows : request.splits) append(bytes, rows);
  return bytes;
}

Request decode(std::string_view bytes) {
  ByteReader in(bytes);
  Request request;
  request.name = in.text();
  if (request.name.size() > kMaxNameBytes) ByteReader::refuse();
  request.collective = read_enum<Collective>(in);
  request.dtype = read_enum<DType>(in);
  request.op = read_enum<ReduceOp>(in);
  request.compression = read_enum<Compression>(in);
  request.prescale_factor = in.number<double>();
  request.postscale_factor = in.number<double>();
  request.root = in.number<int32_t>();
  const auto dims = in.number<uint8_t>();
  if (dims > Shape::kMaxDims) ByteReader::refuse();
  std::vector<int64_t> sizes(dims);
  for (int64_t& size : sizes) size = read_size(in);
  request.shape = Shape(sizes);
  for (auto left = in.number<uint32_t>(); left > 0; --left) request.splits.push_back(read_size(in));
  if (!in.at_end()) ByteReader::refuse();
  return request;
}

}  // namespace trivet::hvd
