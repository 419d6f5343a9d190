// Holds what one layer keeps for one microbatch from its forward to its backward_weight.
//
//   forward --keep()--> Saved --backward_input reads, keep()s more--> backward_weight reads --clear()--> empty
//
// Memory comes from the activation arena and is released in clear(); views put in by reference() are not owned: the layer's
// input x and output gradient dy stay valid until the layer's backward_weight of that microbatch is done, so they need no copy.
// A composite layer gives each of its parts a child. Recomputation calls clear() after forward and later runs forward again.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "core/arena.h"

namespace trivet {

class Saved {
 public:
  Saved() = default;
  Saved(Saved&&) = default;
  Saved& operator=(Saved&&) = default;

  // Allocates memory that lives until clear(), and remembers it under a slot number that the layer chooses (small, dense).
  TensorView keep(Arena& arena, int slot, DType dtype, const Shape& shape) {
    ScopedTensor tensor(arena, dtype, shape);
    const TensorView view = tensor;
    owned_.push_back(std::move(tensor));
    reference(slot, view);
    return view;
  }
  void reference(int slot, ConstTensorView view) {
    reference(slot, TensorView{const_cast<void*>(view.data), view.dtype, view.shape});
  }
  void reference(int slot, TensorView view) {
    if (static_cast<size_t>(slot) >= slots_.size()) slots_.resize(slot + 1);
    slots_[slot] = view;
  }
  TensorView operator[](int slot) const {
    if (static_cast<size_t>(slot) >= slots_.size()) throw std::logic_error("saved: nothing was kept under this slot");
    return slots_[slot];
  }
  // Releases what is kept under a slot, if there is something.
  void release(int slot) {
    if (static_cast<size_t>(slot) >= slots_.size()) return;
    const TensorView view = std::exchange(slots_[slot], {});
    std::erase_if(owned_, [&](const ScopedTensor& tensor) { return tensor.view().data == view.data; });
  }
  Saved& child(int index) {
    while (children_.size() <= static_cast<size_t>(index)) children_.emplace_back();
    return children_[index];
  }
  const Saved& child(int index) const { return children_.at(index); }

  void clear() {
    owned_.clear();
    slots_.clear();
    children_.clear();
  }

 private:
  std::vector<ScopedTensor> owned_;
  std::vector<TensorView> slots_;
  std::deque<Saved> children_;
};

}  // namespace trivet
