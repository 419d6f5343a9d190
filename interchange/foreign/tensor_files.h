// Tensors in files that another program wrote. Each is made of runs: elements that lie one after another in a file.
//
// read() reads only the elements that are asked for. float32, bfloat16, float16 and MXFP4 are read as float32. Thread-safe once
// all tensors were added. Throws CheckpointError naming the file.
//
// MXFP4 (Open Compute Project, Microscaling Formats 1.0): 32 elements share a scale, a power of two. Two tensors of bytes,
// which have the names of one and an ending each, hold it:
//
//   w_blocks [.., N / 32, 16]   two elements in a byte, the earlier in its lower half: sign, exponent (2 bits), fraction (1)
//   w_scales [.., N / 32]       the exponents + 127; 255: no number
#pragma once

#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file_system.h"
#include "engine/checkpoint/tensor_source.h"

namespace trivet::foreign {

// Most tensors are one run. Others are in several files, or in another order; a run that repeats is a part of every row:
//
//   the tensor  | .......... | AAAA | .. | AAAA | .. | AAAA |         elements 4, repeats 3
//               0            first         first + step
struct Run {
  const ReadableFile* file = nullptr;
  int64_t offset_bytes = 0;
  int64_t first = 0, elements = 0;  // range in the tensor; 0 elements: the whole tensor
  int64_t repeats = 1;
  int64_t step = 0, file_step = 0;  // elements from one repeat to the next: in the tensor, at least `elements`; in the file
  bool operator==(const Run&) const = default;
};

class TensorFiles : public checkpoint::TensorSource {
 public:
  // `source`: the file or directory, for messages.
  explicit TensorFiles(std::string source) : source_(std::move(source)) {}
  TensorFiles(const TensorFiles&) = delete;
  TensorFiles& operator=(const TensorFiles&) = delete;

  // Keeps a file open as long as this object.
  const ReadableFile& keep(std::unique_ptr<ReadableFile> file);
  // The runs must lie within their files, and hold each element of the tensor once. Throws CheckpointError (CheckpointCorrupt)
  // if there is a tensor of that name already.
  void add(const std::string& name, DType stored, const Shape& shape, std::vector<Run> runs);
  void add(const std::string& name, DType stored, const Shape& shape, const Run& run) {
    add(name, stored, shape, std::vector<Run>{run});
  }
  // A second name of a tensor that is there; does nothing if it is not, or if the second name is taken.
  void add_alias(const std::string& name, const std::string& tensor);
  // A tensor [A, B, C] becomes a matrix [A B, C] of the same elements.
  void make_matrix(const std::string& name);
  // Joins each pair of tensors that hold MXFP4 to one [.., N], and returns the names of these. Throws CheckpointError if one of
  // a pair is absent or has another type or shape.
  std::set<std::string> join_mxfp4();
  // Removes what DistributedDataParallel and torch.compile put in front of every name ("module.", "_orig_mod."), if all have
  // it.
  void remove_wrapper();

  std::vector<std::string> names() const;
  // The file that holds the tensor or its beginning; null: no such tensor.
  const ReadableFile* file_of(const std::string& name) const;
  // Checks whether both are the same elements of a file.
  bool share_elements(const std::string& one, const std::string& other) const;
  // Differs if names, types, shapes or places differ. The weights themselves are not read.
  virtual uint64_t digest() const;

  std::string source() const override { return source_; }
  std::string origin(const std::string& name, int64_t row) const override;
  const checkpoint::TensorInfo* find(const std::string& name) const override;
  void read(std::span<const checkpoint::Piece> wanted) const override;

 private:
  struct Place {
    DType stored;
    checkpoint::TensorInfo info;
    std::vector<Run> runs;
    std::vector<Run> scales{};  // only with MXFP4, where both are one run of bytes
  };
  void join_mxfp4(const std::string& name);
  void read_piece(const Place& place, const checkpoint::Piece& piece) const;

  std::string source_;
  std::vector<std::unique_ptr<ReadableFile>> files_;
  std::map<std::string, Place> tensors_;
};

// Calls work(). A file that cannot be read becomes a CheckpointError (Usage): for a link it says that links are not followed,
// for too many files how to raise the limit, and otherwise `advice`.
template <typename Work>
auto reading_files(std::string_view advice, Work&& work) {
  try {
    return work();
  } catch (const FileError& error) {
    constexpr const char* kLinks =
        "links are not followed: give a folder that holds the files themselves, such as one made by huggingface-cli download "
        "--local-dir";
    constexpr const char* kMany = "the files of a model stay open: raise the limit with ulimit -n";
    const int number = error.error_number();
    throw CheckpointError(ExitCode::Usage, std::string(error.what()) + "; " +
                                               std::string(number == ELOOP    ? kLinks
                                                           : number == EMFILE ? kMany
                                                                              : advice));
  }
}

}  // namespace trivet::foreign
