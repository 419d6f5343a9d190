#include "interchange/foreign/flat_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/printable.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::foreign {

std::vector<int32_t> read_integers(const ReadableFile& file, size_t count) {
  std::vector<int32_t> integers(std::min(count, static_cast<size_t>(file.size()) / sizeof(int32_t)));
  file.read_exactly(0, std::as_writable_bytes(std::span(integers)));
  return integers;
}

FlatFile::FlatFile(const ReadableFile& file, std::string format, DType dtype, int64_t begin_bytes)
    : file_(file), format_(std::move(format)), dtype_(dtype), at_bytes_(begin_bytes) {
  if (begin_bytes > file.size()) refuse(fmt::format("has {} bytes; its header alone has {}", file.size(), begin_bytes));
}

void FlatFile::refuse(const std::string& what) const {
  checkpoint::corrupt(printable(file_.path()), fmt::format("as a file of {}: {}", format_, what));
}

void FlatFile::refuse_kind(const std::string& what) const {
  throw CheckpointError(ExitCode::Usage, fmt::format("{}: as a file of {}: {}", printable(file_.path()), format_, what));
}

int64_t FlatFile::positive(const char* name, int64_t value, int64_t most) const {
  if (value < 1 || value > most) refuse(fmt::format("{} is {}; use 1 to {}", name, value, most));
  return value;
}

Run FlatFile::take(const Shape& shape) {
  const int64_t left = (file_.size() - at_bytes_) / size_of(dtype_);
  int64_t elements = 1;
  for (const int64_t dim : shape.span())
    if (__builtin_mul_overflow(elements, dim, &elements) || elements > left)
      refuse(fmt::format("it ends too early: a tensor {} at byte {} does not fit into {} bytes", to_string(shape), at_bytes_,
                         file_.size()));
  const Run run{.file = &file_, .offset_bytes = at_bytes_, .elements = elements};
  at_bytes_ += elements * size_of(dtype_);
  return run;
}

void FlatFile::finish() const {
  if (at_bytes_ != file_.size()) refuse(fmt::format("its header describes {} bytes, the file has {}", at_bytes_, file_.size()));
}

std::vector<Run> rows_as_halves(const Run& matrix, int64_t heads, int64_t head_size, int64_t columns, DType stored) {
  std::vector<Run> runs;
  const int64_t half = head_size / 2;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t second = 0; second < 2; ++second)
      runs.push_back({.file = matrix.file,
                      .offset_bytes = matrix.offset_bytes + (head * head_size + second) * columns * size_of(stored),
                      .first = matrix.first + (head * head_size + second * half) * columns,
                      .elements = columns,
                      .repeats = half,
                      .step = columns,
                      .file_step = 2 * columns});
  return runs;
}

}  // namespace trivet::foreign
