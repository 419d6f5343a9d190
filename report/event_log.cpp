#include "report/event_log.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/clock.h"

namespace trivet::report {
namespace {

nlohmann::ordered_json event_of(const char* kind, int64_t step) {
  return {{"event", kind}, {"time", system_clock().unix_seconds()}, {"step", step}};
}

nlohmann::ordered_json as_json(const std::vector<std::pair<std::string, std::string>>& facts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [what, text] : facts) list.push_back(nlohmann::ordered_json::array({what, text}));
  return list;
}

// Bytes that are not UTF-8, such as those of a file name, are replaced.
std::string line_of(const nlohmann::ordered_json& event) {
  return event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

void EventLog::on_start(const monitor::RunStart& start) {
  if (start.steps_done == 0) {
    std::error_code none;  // a missing file is no error
    std::filesystem::remove(path_, none);
  }
  monitor::cut_incomplete_line(path_);
  file_.emplace(path_);
  step_ = start.steps_done;
  nlohmann::ordered_json event = event_of("start", start.steps_done);
  event["total_steps"] = start.total_steps;
  event["facts"] = as_json(start.facts);
  file_->write(line_of(event));
}

void EventLog::on_note(const std::pair<std::string, std::string>& note) {
  nlohmann::ordered_json event = event_of("note", step_);
  event["what"] = note.first;
  event["text"] = note.second;
  file_->write(line_of(event));
}

void EventLog::on_checkpoint(int64_t step) { file_->write(line_of(event_of("checkpoint", step))); }

void EventLog::on_end(const monitor::RunEnd& end) {
  nlohmann::ordered_json event = event_of("end", step_);
  event["facts"] = as_json(end.facts);
  event["memory"] = nlohmann::ordered_json::array();
  for (const monitor::MemoryPeak& peak : end.memory)
    event["memory"].push_back(nlohmann::ordered_json::array({peak.category, peak.planned_bytes, peak.measured_bytes}));
  file_->write(line_of(event));
}

}  // namespace trivet::report
