#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/colours.h"
#include "pipeline/render.h"

namespace trivet::pipeline {
namespace {

constexpr double kLeft = 64, kRight = 76, kTop = 44, kRow = 30, kBox = 24, kTime = 30, kLegend = 36, kLegendLine = 18;
constexpr double kStrip = 5;

// What a drawing shows: its colour is that of the category (core/colours.h), the legend explains it.
struct Shown {
  std::string_view category;
  std::string words;
};

Shown shown(Op op) {
  switch (op) {
    case Op::Forward: return {"forward", "F forward"};
    case Op::BackwardInput: return {"backward_input", "I backward_input"};
    case Op::BackwardWeight: return {"backward_weight", "W backward_weight"};
    case Op::Backward: return {"backward", "B backward (I, W)"};
    case Op::Loss: return {"loss", "L loss"};
    default: return {"recompute", "R forward again"};
  }
}

// The cause of a rank's wait, by the axis that it is for.
Shown cause_of(Queue queue) {
  if (queue == Queue::Meet) return {"meet", "waits for loss, norm or ties"};
  if (queue == Queue::Copy) return {"offload", "waits for copies"};
  const Axis axis = axis_of(queue).value_or(Axis::Data);
  if (axis == Axis::Pipeline) return {"bubble", "waits for a neighbour (bubble)"};
  return {name_of(axis), fmt::format("waits for the {} axis", name_of(axis))};
}

const Shown kBubble{"bubble", "bubble"}, kCommunication{"communication", "communication"},
    kUpdate{"optimizer", "optimizer step"}, kStart{"start", "starts communication"}, kUnknown{"unknown", "no cause recorded"};

constexpr const char* kDark =
    "<style>@media (prefers-color-scheme: dark) { .steps .paper { fill: #16181d; } .steps .unknown { fill: #2b2e36; } "
    ".steps text { fill: #ddd; } .steps .soft { fill: #999; } .steps .inside { fill: #222; } }</style>\n";

// The first of several chunks has the full colour, the last one is the lightest.
std::string shade(Op op, int chunk, int chunks) {
  const double light = chunks > 1 ? 0.55 * chunk / (chunks - 1) : 0;
  const std::string_view full = colour_of(shown(op).category);  // "#4a86d6"
  std::string colour = "#";
  for (const size_t at : {1, 3, 5}) {
    const double part = std::stoi(std::string(full.substr(at, 2)), nullptr, 16);
    colour += fmt::format("{:02x}", std::lround(part + (255 - part) * light));
  }
  return colour;
}

std::string text_at(double x, double y, const std::string& text, const std::string& attributes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes, text);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

// The times of a rank in which it neither computes nor waits.
std::vector<Interval> other_times(const Timeline& timeline, size_t rank) {
  std::vector<Interval> known;
  for (const TimedInstruction& timed : timeline.ranks[rank])
    if (drawn(timed)) known.push_back({timed.start, timed.end});
  for (const TimedWait& wait : timeline.waits[rank]) known.push_back({wait.start, wait.end});
  known.push_back({timeline.makespan, timeline.makespan});
  std::ranges::sort(known, {}, &Interval::start);
  std::vector<Interval> others;
  double end = 0;
  for (const Interval& each : known) {
    if (each.start > end) others.push_back({end, each.start});
    end = std::max(end, each.end);
  }
  return others;
}

// A step begins with the optimizer step that precedes its program (pipeline/measure.h). Later, a program that neither computes
// nor waits executes the other instructions: it hands tensors to the streams that send, gather or reduce them.
Shown cause_of(const Interval& time, const std::vector<TimedInstruction>& rank) {
  if (time.start == 0) return kUpdate;
  const double least = 1e-3 * (time.end - time.start);  // clocks of the program and of its streams are read one after another
  const bool starts = std::ranges::any_of(rank, [&](const TimedInstruction& timed) {
    return !computes(timed.instruction.op) && timed.start >= time.start - least && timed.start <= time.end + least;
  });
  return starts ? kStart : kUnknown;
}

class Picture {
 public:
  explicit Picture(std::span<const Panel> panels) : panels_(panels) {
    std::vector<double> lengths;
    for (const Panel& panel : panels) {
      makespan_ = std::max(makespan_, panel.timeline.makespan);
      chunks_ = std::max(chunks_, panel.caption.chunks);
      for (const auto& rank : panel.timeline.ranks)
        for (const TimedInstruction& timed : rank)
          if (drawn(timed)) lengths.push_back(timed.end - timed.start);
    }
    scale_ = std::max(900 / makespan_, std::min(16 / median_of(std::move(lengths)), 2600 / makespan_));
  }

  std::string draw() {
    const double width = kLeft + makespan_ * scale_ + kRight;
    double top = 0;
    for (const Panel& panel : panels_) {
      draw_panel(panel, top, width);
      top += height_of(panel);
    }
    const double height = draw_legend(top + 16, width) + kLegend - 16;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
               "height=\"{1:.0f}\" class=\"steps\" font-family=\"system-ui, sans-serif\" font-size=\"11\" "
               "fill=\"#222\">\n{2}<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
               width, height, kDark) +
           out_ + "</svg>\n";
  }

 private:
  static double height_of(const Panel& panel) { return kTop + kRow * static_cast<double>(panel.timeline.ranks.size()) + kTime; }

  // Half of the boxes have room for two digits, unless that makes the picture too wide.
  static double median_of(std::vector<double> lengths) {
    if (lengths.empty()) return std::numeric_limits<double>::infinity();
    const auto middle = lengths.begin() + std::ssize(lengths) / 2;
    std::ranges::nth_element(lengths, middle);
    return *middle;
  }

  void draw_panel(const Panel& panel, double top, double width) {
    out_ +=
        text_at(kLeft, top + 26, escaped(to_string(panel.caption, panel.timeline)), " font-size=\"15\" font-weight=\"600\"");
    out_ += text_at(width - kRight + 8, top + kTop - 6, "peak", " class=\"soft\" fill=\"#666\"");
    for (size_t rank = 0; rank < panel.timeline.ranks.size(); ++rank)
      draw_rank(panel, rank, top + kTop + kRow * static_cast<double>(rank));
    draw_time(panel, top + height_of(panel) - kTime);
  }

  void draw_rank(const Panel& panel, size_t rank, double y) {
    const Timeline& timeline = panel.timeline;
    const double middle = y + kBox / 2 + 4;
    out_ += text_at(kLeft - 8, middle, fmt::format("rank {}", rank), " text-anchor=\"end\"");
    const Shown& rest = panel.caption.is_step ? kUnknown : kBubble;
    causes_[rest.words] = rest.category;
    out_ += fmt::format("<rect class=\"{0}\" x=\"{1:.1f}\" y=\"{2:.1f}\" width=\"{3:.1f}\" height=\"{4}\" fill=\"{5}\"/>\n",
                        rest.category, kLeft, y, timeline.makespan * scale_, kBox, colour_of(rest.category));
    if (panel.caption.is_step) draw_waits(timeline, rank, y);
    std::set<int> stages;
    for (const TimedInstruction& timed : timeline.ranks[rank])
      if (drawn(timed)) stages.insert(timed.instruction.stage);
    for (const TimedInstruction& timed : timeline.ranks[rank])
      if (drawn(timed))
        draw_box(panel, timed, y, static_cast<int>(std::distance(stages.begin(), stages.find(timed.instruction.stage))));
    out_ += text_at(kLeft + timeline.makespan * scale_ + 8, middle, std::to_string(timeline.peak_microbatches[rank]));
  }

  // Waits and other times are drawn behind the boxes, and the other work of a rank as a strip below them.
  void draw_waits(const Timeline& timeline, size_t rank, double y) {
    for (const TimedWait& wait : timeline.waits[rank]) {
      if (wait.end <= wait.start) continue;
      draw_cause(wait.start, wait.end, y, cause_of(wait.queue));
    }
    for (const Interval& other : other_times(timeline, rank))
      if (const Shown cause = cause_of(other, timeline.ranks[rank]); cause.category != kUnknown.category)
        draw_cause(other.start, other.end, y, cause);
    for (const TimedInstruction& timed : timeline.ranks[rank]) {
      if (computes(timed.instruction.op) || timed.end <= timed.start) continue;
      causes_[kCommunication.words] = kCommunication.category;
      draw_span(timed.start, timed.end, y + kBox + 1, kStrip, colour_of(kCommunication.category), to_string(timed.instruction));
    }
  }

  void draw_cause(double start, double end, double y, const Shown& cause) {
    causes_[cause.words] = cause.category;
    draw_span(start, end, y, kBox, colour_of(cause.category), cause.words);
  }

  void draw_span(double start, double end, double y, double height, std::string_view colour, const std::string& name) {
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{} from {:.6g} to "
        "{:.6g}</title></rect>\n",
        kLeft + start * scale_, y, (end - start) * scale_, height, colour, name, start, end);
  }

  void draw_box(const Panel& panel, const TimedInstruction& timed, double y, int chunk) {
    const Instruction& i = timed.instruction;
    const double x = kLeft + timed.start * scale_, width = (timed.end - timed.start) * scale_;
    kinds_.insert(i.op);
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.8\">"
        "<title>{} from {:.6g} to {:.6g}</title></rect>\n",
        x, y, width, kBox, shade(i.op, chunk, panel.caption.chunks), to_string(i), timed.start, timed.end);
    const std::string number = std::to_string(i.microbatch);
    if (width >= 7 * static_cast<double>(number.size()))
      out_ +=
          text_at(x + width / 2, y + kBox / 2 + 4, number, " class=\"inside\" text-anchor=\"middle\" pointer-events=\"none\"");
  }

  // Draws about ten ticks, at multiples of 1, 2 or 5 times a power of ten.
  void draw_time(const Panel& panel, double y) {
    const Timeline& timeline = panel.timeline;
    const double rough = timeline.makespan / 10, power = std::pow(10, std::floor(std::log10(rough)));
    const double step = rough / power > 5 ? 10 * power : rough / power > 2 ? 5 * power : rough / power > 1 ? 2 * power : power;
    for (int tick = 0; tick * step <= timeline.makespan * (1 + 1e-9); ++tick)
      out_ += text_at(kLeft + tick * step * scale_, y + 12, fmt::format("{:.6g}", tick * step),
                      " class=\"soft\" text-anchor=\"middle\" fill=\"#666\"");
    out_ += text_at(kLeft - 8, y + 12, panel.caption.unit.empty() ? "time" : panel.caption.unit,
                    " class=\"soft\" text-anchor=\"end\" fill=\"#666\"");
  }

  // Begins a new line where the next entry would not fit. Returns the height of the last line.
  double draw_legend(double y, double width) {
    double x = kLeft;
    const auto entry = [&](const std::vector<std::string>& boxes, const std::string& words, const char* style = "") {
      const double wide = 14 * static_cast<double>(boxes.size()) + 20 + 6.2 * static_cast<double>(words.size());
      if (x > kLeft && x + wide > width) x = kLeft, y += kLegendLine;
      for (const std::string& colour : boxes) {
        out_ += fmt::format("<rect{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" fill=\"{}\"/>\n", style, x, y - 11,
                            colour);
        x += 14;
      }
      out_ += text_at(x + 4, y, words);
      x += wide - 14 * static_cast<double>(boxes.size());
    };
    for (const Op op : kinds_) {
      std::vector<std::string> boxes;
      for (int chunk = 0; chunk < chunks_; ++chunk) boxes.push_back(shade(op, chunk, chunks_));
      entry(boxes, shown(op).words);
    }
    for (const auto& [words, category] : causes_)
      entry({std::string(colour_of(category))}, words, category == kUnknown.category ? " class=\"unknown\"" : "");
    if (chunks_ > 1) entry({}, "(lighter: later chunks of a rank)");
    return y;
  }

  std::span<const Panel> panels_;
  double makespan_ = 0, scale_ = 1;
  int chunks_ = 1;
  std::set<Op> kinds_;
  std::map<std::string, std::string_view> causes_;  // categories
  std::string out_;
};

}  // namespace

std::string to_svg(const Timeline& timeline, const Caption& caption) {
  const Panel panel{timeline, caption};
  return to_svg({&panel, 1});
}

std::string to_svg(std::span<const Panel> panels) { return Picture(panels).draw(); }

}  // namespace trivet::pipeline
