#include "pipeline/instruction.h"

#include <fmt/format.h>

#include <charconv>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::pipeline {
namespace {

// Takes a number off the front of `text`. It has no sign: a negative stage or block would index tables.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || text.front() == '-') return std::nullopt;
  text.remove_prefix(end - text.data());
  return value;
}

// Takes the letters and underscores off the front of `text`.
std::string_view take_name(std::string_view& text) {
  size_t length = 0;
  while (length < text.size() && (text[length] == '_' || (text[length] >= 'A' && text[length] <= 'Z'))) ++length;
  const std::string_view name = text.substr(0, length);
  text.remove_prefix(length);
  return name;
}

std::optional<Instruction> parse_instruction(std::string_view text) {
  Instruction instruction;
  const auto stage = take_number(text);
  if (!stage) return std::nullopt;
  instruction.stage = *stage;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const auto block = take_number(text);
    if (!block) return std::nullopt;
    instruction.block = *block;
  }
  const auto op = from_name<Op>(take_name(text));
  if (!op) return std::nullopt;
  instruction.op = *op;
  if (const auto microbatch = take_number(text)) instruction.microbatch = *microbatch;
  if (!text.empty()) return std::nullopt;
  return instruction;
}

}  // namespace

std::string to_string(const Instruction& i) {
  std::string text = std::to_string(i.stage);
  if (i.block >= 0) text += fmt::format(".{}", i.block);
  text += name_of(i.op);
  if (i.microbatch >= 0) text += std::to_string(i.microbatch);
  return text;
}

std::string to_string(const Program& program) {
  std::string text;
  for (const auto& instruction : program) {
    if (!text.empty()) text += ' ';
    text += to_string(instruction);
  }
  return text;
}

Program parse_program(std::string_view text) {
  Program program;
  while (!text.empty()) {
    const size_t space = text.find_first_of(" \t\r\n");
    const std::string_view token = text.substr(0, space);
    if (!token.empty()) {
      const auto instruction = parse_instruction(token);
      if (!instruction)
        throw ConfigError(
            fmt::format("schedule: \"{}\" is not an instruction; write STAGE[.BLOCK]OP[MICROBATCH] with OP one of {}",
                        printable(token), accepted_names<Op>()));
      program.push_back(*instruction);
    }
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
  }
  return program;
}

}  // namespace trivet::pipeline
