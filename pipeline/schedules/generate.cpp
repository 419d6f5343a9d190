#include <fmt/format.h>

#include "core/error.h"
#include "pipeline/schedules/schedules.h"

namespace trivet::pipeline {
namespace {

void refuse(ScheduleKind kind, const char* what, int value, const std::string& accepted) {
  throw ConfigError(fmt::format("schedule \"{}\": {} {} are not accepted; use {}", name_of(kind), value, what, accepted));
}

void check(ScheduleKind kind, const ScheduleSizes& sizes) {
  if (sizes.ranks < 1) refuse(kind, "pipeline ranks", sizes.ranks, "1 or more");
  if (sizes.microbatches < 1) refuse(kind, "microbatches", sizes.microbatches, "1 or more");
  const ScheduleTraits traits = traits_of(kind);
  if (traits.any_chunks && sizes.chunks < 2) refuse(kind, "chunks", sizes.chunks, "2 or more (with 1 it is \"1f1b\")");
  if (!traits.any_chunks && sizes.chunks != traits.chunks)
    refuse(kind, "chunks", sizes.chunks, traits.chunks == 1 ? "1 (\"interleaved\" takes more)" : std::to_string(traits.chunks));
}

}  // namespace

BackwardSends backward_sends(ScheduleKind kind) {
  return traits_of(kind).sends_after_input ? BackwardSends::AfterInput : BackwardSends::AfterWeights;
}

Schedule generate(ScheduleKind kind, const ScheduleSizes& sizes) {
  check(kind, sizes);
  switch (kind) {
    case ScheduleKind::GPipe: return gpipe(sizes.ranks, sizes.microbatches);
    case ScheduleKind::OneForwardOneBackward: return one_forward_one_backward(sizes.ranks, sizes.microbatches);
    case ScheduleKind::Interleaved: return interleaved(sizes.ranks, sizes.microbatches, sizes.chunks);
    case ScheduleKind::ZeroBubbleH1: return zero_bubble_h1(sizes.ranks, sizes.microbatches);
    case ScheduleKind::ZeroBubble2p: return zero_bubble_2p(sizes.ranks, sizes.microbatches);
    case ScheduleKind::ZeroBubbleV: return zero_bubble_v(sizes.ranks, sizes.microbatches);
  }
  throw std::logic_error("schedule: unknown kind");
}

}  // namespace trivet::pipeline
