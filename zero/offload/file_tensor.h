// A flat tensor in a FileStore.
#pragma once

#include "zero/offload/file_store.h"

namespace trivet::zero::offload {

class FileTensor final : public StagedTensor {
 public:
  // Its elements read as zero. `store` must outlive it.
  FileTensor(FileStore& store, DType dtype, int64_t elements)
      : store_(store), dtype_(dtype), elements_(elements), offset_(store.allocate(elements * size_of(dtype))) {}

  DType dtype() const override { return dtype_; }
  int64_t elements() const override { return elements_; }
  int64_t granule_elements() const override { return kDirectAlignment / size_of(dtype_); }
  PendingCopy read(int64_t first, TensorView to) override { return store_.read(place(first), to.data, to.bytes()); }
  PendingCopy write(int64_t first, ConstTensorView from) override {
    return store_.write(place(first), from.data, from.bytes());
  }

 private:
  int64_t place(int64_t first) const { return offset_ + first * size_of(dtype_); }

  FileStore& store_;
  DType dtype_;
  int64_t elements_, offset_;
};

}  // namespace trivet::zero::offload
