#include "hvd/timeline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/log.h"
#include "core/output_guard.h"
#include "core/printable.h"

namespace trivet::hvd {
namespace {

constexpr std::string_view kBeginning =
    "[\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": \"timeline\"}}";

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Timeline::~Timeline() { close(); }

void Timeline::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  finish();
  OutputGuard().check({.path = path,
                       .key = "HOROVOD_TIMELINE",
                       .what = "a timeline of hvd",
                       .is_own = [](std::string_view beginning) { return beginning.starts_with(kBeginning); },
                       .in_place = true});
  file_.open(path, std::ios::trunc);
  if (!file_) throw ConfigError(fmt::format("HOROVOD_TIMELINE: \"{}\" cannot be written", printable(path)));
  path_ = path;
  rows_.clear();
  start_ = std::chrono::steady_clock::now();
  file_ << kBeginning;
}

void Timeline::close() {
  const std::lock_guard lock(mutex_);
  finish();
}

void Timeline::finish() {
  if (!file_.is_open()) return;
  file_ << "\n]\n";
  file_.close();
  if (!file_) Log(0).warning(fmt::format("HOROVOD_TIMELINE: \"{}\" is not complete: writing has failed", printable(path_)));
}

int Timeline::row_of(const std::string& tensor) {
  const auto [found, is_new] = rows_.try_emplace(tensor, static_cast<int>(rows_.size()) + 1);
  if (is_new)
    file_ << fmt::format(",\n{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {}, \"args\": {{\"name\": {}}}}}",
                         found->second, quoted(tensor));
  return found->second;
}

void Timeline::write(const std::string& tensor, char phase, const std::string& name, const char* more) {
  const std::lock_guard lock(mutex_);
  if (!file_.is_open()) return;
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  const double microseconds = std::chrono::duration<double, std::micro>(elapsed).count();
  const int row = row_of(tensor);
  file_ << fmt::format(",\n{{\"name\": {}, \"ph\": \"{}\", \"pid\": {}, \"tid\": 0, \"ts\": {:.3f}{}}}", quoted(name), phase,
                       row, microseconds, more)
        << std::flush;
}

void Timeline::begin(const std::string& tensor, const std::string& activity) { write(tensor, 'B', activity, ""); }
void Timeline::end(const std::string& tensor) { write(tensor, 'E', "", ""); }
void Timeline::mark(const std::string& tensor, const std::string& text) { write(tensor, 'i', text, R"(, "s": "p")"); }

}  // namespace trivet::hvd
