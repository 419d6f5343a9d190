// Checks the text and the exit code of the error that `work` throws.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace trivet::data {

template <typename Work>
void expect_error(Work work, ExitCode code, const std::string& message) {
  try {
    work();
    ADD_FAILURE() << "no error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.exit_code(), code) << message;
  }
}

}  // namespace trivet::data
