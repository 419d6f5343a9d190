#include "cli/launch/slots.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "cli/launch/cores.h"
#include "cli/launch/text_lines.h"

namespace trivet::cli {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_gpu(std::string_view name) { return is_number(name) || name.starts_with("GPU-") || name.starts_with("MIG-"); }

// Numbers that are too large are left to those who read --include.
int slots_named_in(const std::string& include) {
  constexpr int kMostSlots = 4096;
  int most = 0;
  for (size_t colon = include.find(':'); colon != std::string::npos; colon = include.find(':', colon + 1)) {
    const std::string_view list = std::string_view(include).substr(colon + 1, include.find('@', colon) - colon - 1);
    for (size_t at = 0; at <= list.size();) {
      const std::string_view word = list.substr(at, list.find(',', at) - at);
      int slot = -1;
      std::from_chars(word.data(), word.data() + word.size(), slot);
      if (is_number(word) && slot >= 0 && slot < kMostSlots) most = std::max(most, slot + 1);
      at += word.size() + 1;
    }
  }
  return most;
}

}  // namespace

int count_gpus(const std::string& device_files, const std::optional<std::string>& visible_devices) {
  constexpr std::string_view kPrefix = "nvidia";
  int gpus = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(device_files, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kPrefix) && is_number(std::string_view(name).substr(kPrefix.size()))) ++gpus;
  }
  if (!visible_devices) return gpus;
  const std::vector<std::string> visible = visible_gpus(*visible_devices);
  const bool are_parts = std::ranges::any_of(visible, [](const std::string& name) { return name.starts_with("MIG-"); });
  const int count = static_cast<int>(visible.size());  // a GPU in parts has one device file
  return are_parts ? count : std::min(gpus, count);
}

std::vector<std::string> visible_gpus(std::string_view list) {
  std::vector<std::string> gpus;
  for (const std::string& entry : split(list, ',')) {
    const std::string_view name = trimmed(entry);
    if (!is_gpu(name)) break;
    const size_t zeros = is_number(name) ? std::min(name.find_first_not_of('0'), name.size() - 1) : 0;
    gpus.emplace_back(name.substr(zeros));  // "01" is 1
  }
  return gpus;
}

std::string entry_that_is_no_gpu(std::string_view list) {
  for (const std::string& entry : split(list, ',')) {
    const std::string_view name = trimmed(entry);
    const bool shows_none =
        name.empty() || name == "none" || name == "NoDevFiles" || (name[0] == '-' && is_number(name.substr(1)));
    if (!shows_none && !is_gpu(name)) return std::string(name);
  }
  return "";
}

int usual_slots(const std::string& include) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const int gpus = count_gpus("/dev", visible ? std::optional<std::string>(visible) : std::nullopt);
  if (gpus > 0 && !visible) return gpus;
  // If there are no GPUs for the named slots, rank_layout.cpp reports it, with the value of the variable.
  return std::max(gpus > 0 ? gpus : memory_nodes(), slots_named_in(include));
}

}  // namespace trivet::cli
