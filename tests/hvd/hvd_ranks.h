// Helpers of these tests: ranks as threads with options that suit a test, and the error that a call throws.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "hvd/communicator.h"

namespace trivet::hvd {

// Without the environment's variables, so that a test does not depend on them.
inline void run_ranks(int ranks, const std::function<void(Communicator&)>& body, const Options& options = Options{}) {
  run(ranks, body, options);
}

template <typename T>
std::vector<T> values(const Tensor& tensor) {
  const auto data = tensor.as<T>();
  return {data.begin(), data.end()};
}

// The text of the error that `action` throws, after "KIND: ", the name of its exit code's meaning; "" if it throws none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    const ExitCode code = error.exit_code();
    const std::string kind = code == ExitCode::Usage           ? "Usage: "
                             : code == ExitCode::RanksDisagree ? "RanksDisagree: "
                             : code == ExitCode::NoProgress    ? "NoProgress: "
                             : code == ExitCode::PeerLost      ? "PeerLost: "
                             : code == ExitCode::VersionSkew   ? "VersionSkew: "
                                                               : "another code: ";
    return kind + error.what();
  }
  return "";
}

}  // namespace trivet::hvd
