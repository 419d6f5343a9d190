#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "pipeline/render.h"

namespace trivet::pipeline {
namespace {

constexpr double kMaxCharacters = 1 << 26;  // 512 ranks with 4096 microbatches need 42 million

std::string label(const Instruction& i, const Caption& caption) {
  const std::string name = fmt::format("{}{}", name_of(i.op), i.microbatch);
  return caption.chunks > 1 || i.block >= 0 ? to_string(i) : name;
}

// Returns enough columns for the longest label and a space to fit into the time of the shortest instruction.
double columns_per_time(const Timeline& timeline, const Caption& caption) {
  size_t longest = 0;
  double shortest = std::numeric_limits<double>::infinity();
  for (const auto& rank : timeline.ranks)
    for (const TimedInstruction& timed : rank) {
      if (!drawn(timed)) continue;
      longest = std::max(longest, label(timed.instruction, caption).size());
      shortest = std::min(shortest, timed.end - timed.start);
    }
  return static_cast<double>(longest + 1) / shortest;
}

std::string row(const std::vector<TimedInstruction>& rank, double columns, const Caption& caption) {
  std::string text;
  for (const TimedInstruction& timed : rank) {
    if (!drawn(timed)) continue;
    const auto begin = static_cast<size_t>(std::lround(timed.start * columns));
    const auto end = static_cast<size_t>(std::lround(timed.end * columns));
    text.resize(std::max(begin, text.size()), ' ');
    text += fmt::format("{:<{}}", label(timed.instruction, caption), end - begin);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// A second and more is shown in seconds: "12.0 s", "1.24 s", "4.3 ms".
std::string makespan_text(const Caption& caption, const Timeline& timeline) {
  const double seconds = timeline.makespan / 1000;
  if (caption.unit == "ms" && seconds >= 1) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 1);
  return fmt::format("{:.6g}{}", timeline.makespan, caption.unit.empty() ? "" : " " + caption.unit);
}

}  // namespace

std::string to_string(const Caption& caption, const Timeline& timeline) {
  if (caption.is_step && caption.ranks == 1)
    return fmt::format("{}: {}, {} microbatch{}, {:.1f} % without computation", caption.schedule,
                       makespan_text(caption, timeline), caption.microbatches, caption.microbatches == 1 ? "" : "es",
                       100 * timeline.bubble_fraction);
  return fmt::format("{}: P {}, M {}{}, makespan {}, bubble {:.1f} %", caption.schedule, caption.ranks, caption.microbatches,
                     caption.chunks > 1 ? fmt::format(", V {}", caption.chunks) : "", makespan_text(caption, timeline),
                     100 * timeline.bubble_fraction);
}

std::string to_text(const Timeline& timeline, const Caption& caption) {
  const double columns = columns_per_time(timeline, caption);
  const double characters = columns * timeline.makespan * static_cast<double>(timeline.ranks.size());
  if (characters > kMaxCharacters)
    throw ConfigError(
        fmt::format("{}: the drawing would have {:.0f} million characters, but the limit is {:.0f} million; use fewer "
                    "microbatches or ranks, or a format without columns (json, trace)",
                    caption.schedule, characters / 1e6, kMaxCharacters / 1e6));
  std::string text = to_string(caption, timeline) + "\n";
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    text += fmt::format("rank {:<3} {}\n", rank, row(timeline.ranks[rank], columns, caption));
  return text + fmt::format("peak microbatches of a stage, from F to W: {}\n", fmt::join(timeline.peak_microbatches, " "));
}

}  // namespace trivet::pipeline
