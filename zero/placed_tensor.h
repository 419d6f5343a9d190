// A flat tensor of a rank, wherever it is kept (zero/placement.h), and the ways to bring it to memory that kernels reach, and
// back.
//
//   it is kept          kernels of the device     kernels of the host (zero/host_side.h)
//   on the device       use it where it is        stage it, if it is shown to them
//   in host memory      stage it                  use it where it is
//   in a file           stage it                  stage it
//
// A PlacedTensor owns the memory, or its range of a file; a PlacedView is what one side sees of it.
#pragma once

#include <functional>
#include <memory>

#include "core/buffer.h"
#include "core/stream.h"
#include "core/tensor_view.h"
#include "zero/host_and_device_tensors.h"
#include "zero/placement.h"
#include "zero/resources.h"

namespace trivet::zero {

// A view of a tensor, and the StagedTensor through which a side has to stage it. Without one, that side's kernels reach the
// view's memory. The view of a tensor that is not on the device has a size and no memory until it is staged. Assigning a view
// to it keeps `staged`.
template <typename View>
struct Placed : View {
  StagedTensor* staged = nullptr;
  using View::operator=;
};
using PlacedView = Placed<TensorView>;
using ConstPlacedView = Placed<ConstTensorView>;

struct PlacedTensorOptions {
  Placement placement = Placement::Device;
  MemoryCategory category = MemoryCategory::Parameters;  // it also says which file: that of the weights or that of the states
  DType dtype = DType::Float32;
  int64_t elements = 0;
};

class PlacedTensor {
 public:
  PlacedTensor() = default;  // no tensor
  // The objects that `resources` refers to must outlive it.
  PlacedTensor(const PlacedTensorOptions& options, const Resources& resources);

  // Checks whether it is kept in the device's memory.
  bool on_device() const { return !home_; }
  // Without memory if it is kept elsewhere.
  TensorView view();
  ConstTensorView view() const;

  // Makes the elements [first, first + count) known to the host's kernels, which then stage them. Does nothing if the tensor is
  // not on the device.
  void show_to_host(HostSide& host, int64_t first, int64_t count);
  // The elements [first, first + count) as the kernels of a side see them; null: those of the device. These must be all
  // elements of a tensor that is kept elsewhere, and those that were shown of one that is shown to the host.
  PlacedView seen_by(const HostSide* host, int64_t first, int64_t count);

  // Copies all of it to device memory, on `stream`. Only for a tensor that is not on the device.
  void copy_to(TensorView to, Stream& stream, const Resources& resources);
  // Calls use(the elements [first, first + count), in device memory). If the tensor is kept elsewhere, they are read before, or
  // written back afterwards if `written`; `use` must then write all of them.
  void use_on_device(int64_t first, int64_t count, bool written, Arena& buffers, const std::function<void(TensorView)>& use);

 private:
  Buffer memory_;                                 // if it is kept on the device
  std::unique_ptr<StagedTensor> home_;            // otherwise
  HostTensor* in_host_memory_ = nullptr;          // home_, if that is host memory
  std::unique_ptr<StagedTensor> seen_by_device_;  // home_, if staging it takes the device's help
  std::unique_ptr<StagedTensor> seen_by_host_;    // memory_, if it is shown to the host
  DType dtype_ = DType::Float32;
  int64_t elements_ = 0;
};

}  // namespace trivet::zero
