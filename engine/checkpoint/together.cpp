#include "engine/checkpoint/together.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_system.h"

namespace trivet::checkpoint {
namespace {

// "0" + result, or "1", the exit code in three digits and the error's text.
std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return fmt::format("0{}", work());
  } catch (const CheckpointError& error) {
    return fmt::format("1{:03}{}", static_cast<int>(error.exit_code()), error.what());
  } catch (const NumericsError& error) {
    return fmt::format("1{:03}{}", static_cast<int>(ExitCode::Numerics), error.what());
  } catch (const FileError& error) {
    return fmt::format("1{:03}{}", static_cast<int>(ExitCode::CheckpointNotWritten), error.what());
  }
}

bool is_numerics(const std::string& outcome) {
  return outcome.starts_with(fmt::format("1{:03}", static_cast<int>(ExitCode::Numerics)));
}

}  // namespace

std::vector<std::string> together(const Participants& ranks, const std::function<std::string()>& work) {
  const std::string own = outcome_of(work);
  std::vector<std::string> outcomes = ranks.gather(own);
  for (const std::string& outcome : outcomes)
    if (is_numerics(outcome)) throw NumericsError(outcome.substr(4));
  for (const std::string& outcome : outcomes) {
    if (outcome.at(0) == '0') continue;
    const auto code = static_cast<ExitCode>(std::stoi(outcome.substr(1, 3)));
    if (own.at(0) != '0') throw FailedHere(code, outcome.substr(4));
    throw CheckpointError(code, outcome.substr(4));
  }
  for (std::string& outcome : outcomes) outcome.erase(0, 1);
  return outcomes;
}

}  // namespace trivet::checkpoint
