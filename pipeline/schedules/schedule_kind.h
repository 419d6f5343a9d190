// The kinds of schedules: their names, as `pipeline.schedule` and `trivet schedule --type` spell them, and what the config, the
// cost model and the searches must know of each. pipeline/schedules/schedules.h describes them.
#pragma once

#include <stdexcept>

#include "core/enum_names.h"

namespace trivet {

enum class ScheduleKind { GPipe, OneForwardOneBackward, Interleaved, ZeroBubbleH1, ZeroBubble2p, ZeroBubbleV };

template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array<std::pair<std::string_view, ScheduleKind>, 6> table{
      {{"gpipe", ScheduleKind::GPipe},
       {"1f1b", ScheduleKind::OneForwardOneBackward},
       {"interleaved", ScheduleKind::Interleaved},
       {"zb-h1", ScheduleKind::ZeroBubbleH1},
       {"zb-2p", ScheduleKind::ZeroBubble2p},
       {"zb-v", ScheduleKind::ZeroBubbleV}}};
};

struct ScheduleTraits {
  int chunks = 1;                   // stages per rank; the default if any_chunks
  bool any_chunks = false;          // the config may ask for any number of at least 2
  bool sends_after_input = false;   // gradients are sent after I; otherwise after the W that follows it
  bool ends_on_first_rank = false;  // rank r of P has stages r and 2P - 1 - r, a V; otherwise r, r + P, r + 2P ...
};

constexpr ScheduleTraits traits_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::GPipe:
    case ScheduleKind::OneForwardOneBackward: return {};
    case ScheduleKind::Interleaved: return {.chunks = 2, .any_chunks = true};
    case ScheduleKind::ZeroBubbleH1:
    case ScheduleKind::ZeroBubble2p: return {.sends_after_input = true};
    case ScheduleKind::ZeroBubbleV: return {.chunks = 2, .sends_after_input = true, .ends_on_first_rank = true};
  }
  throw std::logic_error("schedule: unknown kind");
}

}  // namespace trivet
