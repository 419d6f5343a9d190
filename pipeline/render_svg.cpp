#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "pipeline/render.h"

namespace trivet::pipeline {
namespace {

constexpr double kLeft = 64, kRight = 76, kTop = 44, kRow = 30, kBox = 24, kTime = 30, kLegend = 36;
constexpr double kStrip = 5;
constexpr const char* kStripColour = "#8a7f6d";

struct Colour {
  double red, green, blue;
};

Colour colour_of(Op op) {
  switch (op) {
    case Op::Forward: return {74, 134, 214};
    case Op::BackwardInput: return {62, 168, 128};
    case Op::BackwardWeight: return {240, 162, 60};
    case Op::Backward: return {44, 142, 152};
    case Op::Loss: return {206, 88, 112};
    default: return {152, 128, 200};
  }
}

// The cause of a rank's wait, or of what runs next to its program, by the axis that it is for.
struct Cause {
  const char* colour;
  const char* waits;
};
Cause cause_of(Queue queue) {
  if (queue == Queue::Meet) return {"#e3a7b4", "waits for loss, norm or ties"};
  if (queue == Queue::Copy) return {"#b9b2a0", "waits for copies"};
  const auto axis = axis_of(queue);
  if (axis == Axis::Pipeline) return {"#c9bce0", "waits for a neighbour"};
  if (axis == Axis::Tensor) return {"#a9cfd4", "waits for the tensor axis"};
  return {"#f2cf9d", "waits for the data axis"};
}

constexpr const char* kDark =
    "<style>@media (prefers-color-scheme: dark) { .steps .paper { fill: #16181d; } .steps .idle { fill: #2b2e36; } "
    ".steps text { fill: #ddd; } .steps .soft { fill: #999; } .steps .inside { fill: #222; } }</style>\n";

// The first of several chunks has the full colour, the last one is the lightest.
std::string shade(Op op, int chunk, int chunks) {
  const double light = chunks > 1 ? 0.55 * chunk / (chunks - 1) : 0;
  const Colour c = colour_of(op);
  const auto mix = [&](double part) { return static_cast<int>(std::lround(part + (255 - part) * light)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(c.red), mix(c.green), mix(c.blue));
}

std::string text_at(double x, double y, const std::string& text, const std::string& attributes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes, text);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
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
    double height = kLegend;
    for (const Panel& panel : panels_) height += height_of(panel);
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "class=\"steps\" font-family=\"system-ui, sans-serif\" font-size=\"11\" fill=\"#222\">\n{2}"
        "<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        width, height, kDark);
    double top = 0;
    for (const Panel& panel : panels_) {
      draw_panel(panel, top, width);
      top += height_of(panel);
    }
    draw_legend(top + 16);
    return out_ + "</svg>\n";
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
    out_ += fmt::format("<rect class=\"idle\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"#eee\"/>\n",
                        kLeft, y, timeline.makespan * scale_, kBox);
    if (panel.caption.is_step) draw_waits(timeline, rank, y);
    std::set<int> stages;
    for (const TimedInstruction& timed : timeline.ranks[rank])
      if (drawn(timed)) stages.insert(timed.instruction.stage);
    for (const TimedInstruction& timed : timeline.ranks[rank])
      if (drawn(timed))
        draw_box(panel, timed, y, static_cast<int>(std::distance(stages.begin(), stages.find(timed.instruction.stage))));
    out_ += text_at(kLeft + timeline.makespan * scale_ + 8, middle, std::to_string(timeline.peak_microbatches[rank]));
  }

  // Waits are drawn behind the boxes, and the other work of a rank as a strip below them.
  void draw_waits(const Timeline& timeline, size_t rank, double y) {
    for (const TimedWait& wait : timeline.waits[rank]) {
      if (wait.end <= wait.start) continue;
      const Cause cause = cause_of(wait.queue);
      causes_[cause.waits] = cause.colour;
      draw_span(wait.start, wait.end, y, kBox, cause.colour, cause.waits);
    }
    for (const TimedInstruction& timed : timeline.ranks[rank]) {
      if (computes(timed.instruction.op) || timed.end <= timed.start) continue;
      has_strips_ = true;
      draw_span(timed.start, timed.end, y + kBox + 1, kStrip, kStripColour, to_string(timed.instruction));
    }
  }

  void draw_span(double start, double end, double y, double height, const char* colour, const std::string& name) {
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

  void draw_legend(double y) {
    static const std::map<Op, const char*> names{{Op::Forward, "F forward"},
                                                 {Op::BackwardInput, "I backward_input"},
                                                 {Op::BackwardWeight, "W backward_weight"},
                                                 {Op::Backward, "B backward (I, W)"},
                                                 {Op::Loss, "L loss"},
                                                 {Op::Recompute, "R forward again"}};
    double x = kLeft;
    for (Op op : kinds_) {
      for (int chunk = 0; chunk < chunks_; ++chunk, x += 14)
        out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" fill=\"{}\"/>\n", x, y - 11,
                            shade(op, chunk, chunks_));
      out_ += text_at(x + 4, y, names.at(op));
      x += 124;
    }
    const auto entry = [&](const char* colour, const char* name) {
      out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" fill=\"{}\"/>\n", x, y - 11, colour);
      out_ += text_at(x + 18, y, name);
      x += 34 + 6.2 * static_cast<double>(std::string_view(name).size());
    };
    for (const auto& [name, colour] : causes_) entry(colour, name.data());
    if (has_strips_) entry(kStripColour, "communication");
    out_ +=
        fmt::format("<rect class=\"idle\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" fill=\"#eee\"/>\n", x, y - 11);
    out_ += text_at(x + 18, y, chunks_ > 1 ? "idle (lighter: later chunks of a rank)" : "idle");
  }

  std::span<const Panel> panels_;
  double makespan_ = 0, scale_ = 1;
  int chunks_ = 1;
  std::set<Op> kinds_;
  std::map<std::string_view, const char*> causes_;  // colours
  bool has_strips_ = false;
  std::string out_;
};

}  // namespace

std::string to_svg(const Timeline& timeline, const Caption& caption) {
  const Panel panel{timeline, caption};
  return to_svg({&panel, 1});
}

std::string to_svg(std::span<const Panel> panels) { return Picture(panels).draw(); }

}  // namespace trivet::pipeline
