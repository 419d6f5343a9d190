#include "report/monitor/loss_bits.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::monitor {
namespace {

constexpr size_t kMaxLineBytes = 4096;  // with its end; to_json_line() writes far fewer

// The digits after `key`, as a number.
template <typename Number>
std::optional<Number> number_after(std::string_view line, std::string_view key, int base) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  const char* const begin = line.data() + at + key.size();
  Number number{};
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), number, base);
  if (error != std::errc{} || end == begin) return std::nullopt;
  return number;
}

}  // namespace

std::map<int64_t, uint32_t> read_loss_bits(std::istream& lines, const std::string& source, int64_t first, int64_t last) {
  std::map<int64_t, uint32_t> bits;
  std::array<char, kMaxLineBytes> buffer;
  for (int64_t number = 1; !lines.eof(); ++number) {
    lines.getline(buffer.data(), buffer.size());
    if (lines.eof()) break;  // a run that was killed may have left an incomplete line
    const std::string_view line = buffer.data();
    const auto step = number_after<int64_t>(line, "{\"step\": ", 10);
    const auto loss = number_after<uint32_t>(line, "\"loss_bits\": \"", 16);
    if (lines && step && line.find("\"loss_bits\": null") != std::string_view::npos) continue;  // it had no targets
    if (!lines || !step || !loss)
      throw DataError(ExitCode::Usage,
                      fmt::format("{}:{}: \"{}\" is not a line of trivet train --metrics; use the file that the run "
                                  "wrote",
                                  printable(source), number, printable(line, 80)));
    if (*step >= first && *step <= last) bits[*step] = *loss;
  }
  return bits;
}

std::map<int64_t, uint32_t> read_loss_bits(const std::string& path, int64_t first, int64_t last) {
  std::error_code none;
  if (std::filesystem::is_fifo(path, none))  // opening it would wait for its writer
    throw DataError(ExitCode::Usage, fmt::format("{}: is a FIFO; use a file that trivet train --metrics wrote", path));
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw DataError(ExitCode::Usage, fmt::format("{}: cannot be read; use a file that trivet train --metrics wrote", path));
  return read_loss_bits(file, path, first, last);
}

}  // namespace trivet::monitor
