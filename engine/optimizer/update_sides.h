// The two places where updates run: the device and, for groups whose states are kept in host memory, the host
// (zero/host_side.h).
#pragma once

#include <span>
#include <vector>

#include "core/buffer.h"
#include "engine/optimizer/owned_parameters.h"
#include "engine/optimizer/step_results.h"
#include "engine/optimizer/update_resources.h"
#include "zero/staged_walk.h"

namespace trivet {

struct UpdateSide {
  kernels::Kernels& kernels;
  Arena& buffers;
  ConstTensorView verdict;               // kernels::JudgeGradients, where these kernels can read it
  zero::HostSide* host = nullptr;        // null: this is the device
  std::vector<zero::OwnedPiece> pieces;  // updated on this side, in order
};

class UpdateSides {
 public:
  UpdateSides(const OwnedParameters& owned, StepResults& results, const UpdateResources& resources);

  const UpdateSide& device() const { return sides_.front(); }
  // Null if nothing is offloaded to a device's host.
  const UpdateSide* host() const { return sides_.size() > 1 ? &sides_.back() : nullptr; }
  // The device's side and, if there is one, the host's.
  std::span<const UpdateSide> all() const { return sides_; }
  // The side whose kernels a range is for.
  const UpdateSide& of(const zero::OwnedRange& range) const { return range.host ? sides_.back() : sides_.front(); }

  // Only with a host's side: waits for the device's verdict, and returns whether it says to skip the step.
  bool is_skipped_on_host();

 private:
  Buffer verdict_on_host_;
  std::vector<UpdateSide> sides_;
};

}  // namespace trivet
