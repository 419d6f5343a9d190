#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "core/error.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/stages.h"
#include "pipeline/validate.h"

namespace trivet::pipeline {
namespace {

constexpr const char* kAccepted = "write F, I, W or B (I and W) of a whole stage and a microbatch, such as 0F3";

// Where a token stands, for messages.
struct Place {
  const std::string& file;
  int line;
};

[[noreturn]] void refuse(const Place& place, std::string_view token) {
  throw ConfigError(fmt::format("{}:{}: \"{}\" is not accepted; {}", place.file, place.line, token, kAccepted));
}

Instruction read_token(const Place& place, const std::string& token) {
  Instruction i;
  try {
    i = parse_program(token).at(0);
  } catch (const ConfigError&) {
    refuse(place, token);
  }
  const bool compute_order = i.op <= Op::Backward && i.block < 0;
  if (!compute_order || i.microbatch < 0 || i.stage < 0) refuse(place, token);
  return i;
}

Program read_line(const Place& place, const std::string& line) {
  Program program;
  std::istringstream tokens(line.substr(0, line.find('#')));
  for (std::string token; tokens >> token;) {
    const Instruction i = read_token(place, token);
    if (i.op != Op::Backward) {
      program.push_back(i);
    } else {
      program.push_back({Op::BackwardInput, i.stage, i.microbatch});
      program.push_back({Op::BackwardWeight, i.stage, i.microbatch});
    }
  }
  return program;
}

}  // namespace

Schedule parse_schedule(std::string_view text, const std::string& name) {
  Schedule schedule;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    Program program = read_line({name, ++number}, line);
    if (!program.empty()) schedule.push_back(std::move(program));
  }
  if (schedule.empty())
    throw ConfigError(fmt::format("{}: no instructions; write one line per pipeline rank: {}", name, kAccepted));
  try {
    validate(schedule, count_microbatches(schedule));
  } catch (const std::logic_error& error) {
    throw ConfigError(fmt::format("{}: {}", name, error.what()));
  }
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw ConfigError(fmt::format("{}: cannot be read; name a file with a line per pipeline rank", path));
  return parse_schedule(text.str(), path);
}

}  // namespace trivet::pipeline
