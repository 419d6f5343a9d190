#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "core/bounded_file.h"
#include "core/error.h"
#include "core/printable.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/stages.h"
#include "pipeline/validate.h"

namespace trivet::pipeline {
namespace {

constexpr int64_t kMaxBytes = int64_t{16} << 20;
constexpr const char* kAccepted = "write F, I, W or B (I and W together) for a whole stage and one microbatch, such as 0F3";

// The position of a token, for messages.
struct TokenPosition {
  const std::string& file;
  int line;
};

[[noreturn]] void refuse(const TokenPosition& place, std::string_view token) {
  throw ConfigError(fmt::format("{}:{}: \"{}\" is not accepted; {}", place.file, place.line, printable(token), kAccepted));
}

Instruction read_token(const TokenPosition& place, const std::string& token) {
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

Program read_line(const TokenPosition& place, const std::string& line) {
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

// Every microbatch has instructions on every stage, and both are numbered from 0 without gaps. A number that is too high for
// the length of the file is therefore a mistake. It is caught here, before tables of that size are allocated.
void check_numbers(const Schedule& schedule, const std::string& name) {
  int64_t instructions = 0;
  Instruction highest_stage{.microbatch = 0}, highest_microbatch{.microbatch = 0};
  for (const Program& program : schedule)
    for (const Instruction& i : program) {
      ++instructions;
      if (i.stage > highest_stage.stage) highest_stage = i;
      if (i.microbatch > highest_microbatch.microbatch) highest_microbatch = i;
    }
  const int64_t stages = int64_t{highest_stage.stage} + 1, microbatches = int64_t{highest_microbatch.microbatch} + 1;
  if (stages <= instructions / microbatches) return;
  throw ConfigError(
      fmt::format("{}: {} and {} imply {} stages and {} microbatches, but the file has only {} instructions, which are too "
                  "few; number both from 0 without gaps",
                  name, to_string(highest_stage), to_string(highest_microbatch), stages, microbatches, instructions));
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
  check_numbers(schedule, name);
  try {
    validate(schedule, count_microbatches(schedule));
  } catch (const std::logic_error& error) {
    throw ConfigError(fmt::format("{}: {}", name, printable(error.what(), 1000)));
  }
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  const BoundedText read = read_bounded(path, kMaxBytes, "a schedule");
  if (!read.problem.empty())
    throw ConfigError(fmt::format("{}: {}; name a file with one line per pipeline rank", path, read.problem));
  return parse_schedule(read.text, path);
}

}  // namespace trivet::pipeline
