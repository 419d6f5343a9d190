// Values of tensors in the float dtype that is wanted, whatever they are stored in. A checkpoint holds the master weights in
// float32 but frozen weights in the dtype that the layers of its run used, which need not be that of the run that reads them.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "engine/checkpoint/tensor_source.h"

namespace trivet::checkpoint {

class ConvertedSource final : public TensorSource {
 public:
  // `stored` must outlive this. With `shown`, find() says that every float tensor has this dtype.
  explicit ConvertedSource(const TensorSource& stored, std::optional<DType> shown = {}) : stored_(stored), shown_(shown) {}

  std::string source() const override { return stored_.source(); }
  const TensorInfo* find(const std::string& name) const override;
  // Unlike that of other sources, it accepts pieces of another float dtype, and rounds to nearest even.
  void read(std::span<const Piece> wanted) const override;

 private:
  void read_converted(const Piece& wanted, DType stored) const;

  const TensorSource& stored_;
  std::optional<DType> shown_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, TensorInfo> infos_;  // the tensors that were asked for, if `shown`
};

}  // namespace trivet::checkpoint
