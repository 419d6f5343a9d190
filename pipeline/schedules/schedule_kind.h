// The names of the generators, as `pipeline.schedule` and `trivet schedule --type` spell them.
#pragma once

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

}  // namespace trivet
