#include "engine/optimizer/update_sides.h"

#include "kernels/verdict.h"

namespace trivet {

UpdateSides::UpdateSides(const OwnedParameters& owned, StepResults& results, const UpdateResources& resources) {
  const ConstTensorView verdict = results.verdict();
  sides_.push_back({resources.kernels, resources.buffers, verdict, nullptr, {}});
  if (zero::HostSide* const host = resources.offload.host) {
    verdict_on_host_ = Buffer(host->allocator(), host->meter(), MemoryCategory::Buffers, verdict.dtype, verdict.shape);
    sides_.push_back({host->kernels(), host->staging(), verdict_on_host_.view(), host, {}});
  }
  for (const OwnedGroup& of : owned.groups()) {
    const auto pieces = zero::pieces_of(*of.group, resources.offload.staging.most_elements);
    std::vector<zero::OwnedPiece>& all = (of.group->owned().host ? sides_.back() : sides_.front()).pieces;
    all.insert(all.end(), pieces.begin(), pieces.end());
  }
}

bool UpdateSides::is_skipped_on_host() {
  device().kernels.to_host(device().verdict, verdict_on_host_.view());
  return device().kernels.device() != Device::Meta && verdict_on_host_.view().as<double>()[kernels::kApply] == 0;
}

}  // namespace trivet
