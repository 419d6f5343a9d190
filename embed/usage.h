// Errors of a trainer that makes a call at the wrong time or with wrong arguments.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace trivet::embed {

template <typename... Args>
Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitCode::Usage, "embed: " + fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace trivet::embed
