#include "report/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/monitor/number_text.h"

namespace trivet::report {
namespace {

constexpr int kMostTicks = 20;

struct Unit {
  double size = 1;
  const char* letter = "";
};

// Returns the unit for numbers up to `largest` if a few digits still tell apart neighbours at this distance.
Unit unit_of(double largest, double distance) {
  for (const Unit unit : {Unit{1e12, "T"}, Unit{1e9, "G"}, Unit{1e6, "M"}})
    if (largest >= unit.size && distance >= 1e-3 * unit.size) return unit;
  return {};
}

// `distance`: 1, 2 or 5 times a power of 10.
std::string tick_text(double value, double distance, const Unit& unit) {
  const double shown = std::abs(value) < 1e-9 * distance ? 0 : value / unit.size, between = distance / unit.size;
  if (between < 1e-5 || std::abs(shown) >= 1e15) return fmt::format("{:.4g}{}", shown, unit.letter);
  if (between >= 1) return monitor::with_commas(std::llround(shown)) + unit.letter;
  return fmt::format("{:.{}f}{}", shown, static_cast<int>(std::ceil(-std::log10(between) - 1e-9)), unit.letter);
}

// So that there are about five ticks.
double distance_of(const Range& range) {
  const double rough = range.length() / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough * 0.999) return factor * power;
  return 10 * power;
}

std::vector<Tick> ticks_at(const Range& range, double distance) {
  const Unit unit = unit_of(std::max(std::abs(range.low), std::abs(range.high)), distance);
  const double first = std::ceil(range.low / distance - 1e-6) * distance;
  std::vector<Tick> ticks;
  for (int i = 0; i < kMostTicks && first + i * distance <= range.high + 1e-6 * distance; ++i)
    ticks.push_back({first + i * distance, tick_text(first + i * distance, distance, unit)});
  return ticks;
}

// An axis for values that are all equal, or differ by less than can be drawn.
void widen(Range& values, bool from_zero) {
  const double largest = std::max(std::abs(values.low), std::abs(values.high));
  if (values.length() > std::max(1e-12 * largest, 1e-290)) return;
  const double around = largest < 1e-289 ? 1 : 0.1 * largest;
  values.add(values.high + around);
  if (!from_zero) values.add(values.low - around);
}

ChartAxis axis_between_ticks(Range values) {
  const double each = distance_of(values);
  values.add(std::floor(values.low / each + 1e-6) * each);
  values.add(std::ceil(values.high / each - 1e-6) * each);
  return {.range = values, .ticks = ticks_at(values, each)};
}

// Numbers that begin with few digits, the fewer the wider the values spread: from one below the values to one above them.
std::vector<double> round_numbers_around(const Range& values) {
  const double low = std::log10(values.low), high = std::log10(values.high);
  const std::vector<double> factors = high - low < 1.1   ? std::vector{1.0, 2.0, 3.0, 4.0, 6.0, 8.0}
                                      : high - low < 2.2 ? std::vector{1.0, 2.0, 5.0}
                                                         : std::vector{1.0};
  const double every = std::max(1.0, std::ceil((high - low) / 6));
  std::vector<double> numbers;
  for (double power = std::floor(low); power < high + every; power += every)
    for (const double factor : factors) numbers.push_back(factor * std::pow(10, power));
  const auto above = std::ranges::find_if(numbers, [&](double number) { return number >= values.high * (1 - 1e-9); });
  numbers.erase(above + (above != numbers.end()), numbers.end());
  const auto inside = std::ranges::find_if(numbers, [&](double number) { return number > values.low * (1 + 1e-9); });
  numbers.erase(numbers.begin(), inside - (inside != numbers.begin()));
  return numbers;
}

}  // namespace

void Range::add(double value) { low = std::min(low, value), high = std::max(high, value); }

double ChartAxis::share(double value) const {
  return logarithmic ? std::log(value / range.low) / std::log(range.high / range.low) : (value - range.low) / range.length();
}

ChartAxis axis_of_values(Range values, bool from_zero) {
  if (from_zero) values.add(0);
  widen(values, from_zero);
  return axis_between_ticks(values);
}

ChartAxis logarithmic_axis_of_values(Range values) {
  if (values.high < values.low * (1 + 1e-9)) values = {values.low / 1.1, values.high * 1.1};
  ChartAxis axis;
  if (values.high / values.low < 3) {
    axis = axis_between_ticks(values);  // they are closer than the lowest value is to 0
  } else {
    for (const double number : round_numbers_around(values))
      axis.ticks.push_back({number, tick_text(number, number, unit_of(number, number))});
    axis.range = {axis.ticks.front().value, axis.ticks.back().value};
  }
  axis.logarithmic = true;
  return axis;
}

ChartAxis axis_of_steps(Range steps) {
  if (steps.length() == 0) steps.add(steps.low + 1);
  return {.range = steps, .ticks = ticks_at(steps, std::max(distance_of(steps), 1.0))};
}

}  // namespace trivet::report
