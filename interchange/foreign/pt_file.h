// A file that torch.save wrote: a pickle that describes objects, and the bytes of each tensor's storage, in a zip archive.
//
//   NAME/data.pkl     the pickle      NAME/data/0, NAME/data/1 ...   storages, little-endian
//
// Opening reads the archive's directory and the pickle. Nothing is executed (pickle.h). Every tensor's type, size, stride and
// place are checked against the storage that holds it. Errors are CheckpointErrors that name the file: CheckpointCorrupt, or
// Usage for what is not accepted.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/file_system.h"
#include "core/shape.h"
#include "interchange/foreign/pickle.h"
#include "interchange/foreign/tensor_files.h"
#include "interchange/foreign/zip_directory.h"

namespace trivet::foreign {

inline constexpr int64_t kPickleLimitBytes = int64_t{64} << 20;

struct PtTensor {
  DType dtype = DType::Float32;  // as stored; bool and int8 as UInt8, int16 as UInt16
  Shape shape;
  Run run;
};

class PtFile {
 public:
  // `file` must outlive this.
  explicit PtFile(const ReadableFile& file, AcceptedNames names = AcceptedNames::OfWeights);

  const PickleValue& root() const { return pickle_->root(); }
  const std::string& path() const { return path_; }  // printable

  static bool is_tensor(const PickleValue& value);
  // `name`: for messages. Throws for a value that is no tensor.
  PtTensor tensor(const PickleValue& value, std::string_view name) const;
  // The tensors of a dict whose keys are texts; other values are left out.
  std::vector<std::pair<std::string, PtTensor>> tensors(const PickleValue& dict) const;

  // A member that must be there.
  const PickleValue& member(const PickleValue& dict, std::string_view key) const;
  int64_t count(const PickleValue& value, std::string_view what) const;  // an integer in [0, 2^62]
  Shape shape(const PickleValue& value, std::string_view what) const;    // the product is checked for overflow
  [[noreturn]] void refuse(std::string_view what) const;                 // CheckpointCorrupt

 private:
  static const std::vector<const PickleValue*>* tensor_arguments(const PickleValue& value);  // null: no tensor
  std::string text_of(const std::string& entry, int64_t limit_bytes) const;

  const ReadableFile& file_;
  std::string path_, folder_;  // folder_: "NAME/"
  std::map<std::string, ZipEntry> entries_;
  std::optional<Pickle> pickle_;
};

// Adds the state dict of a file: the dict of tensors that is its root, or the root's member "state_dict", "model" or "module".
void add_state_dict(const PtFile& file, TensorFiles& to);

}  // namespace trivet::foreign
