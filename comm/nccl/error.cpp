#include "comm/nccl/error.h"

#include <fmt/format.h>

#include <stdexcept>

namespace trivet::comm {

std::string nccl_version_text(int code) { return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100); }

std::exception_ptr nccl_error(const RankInGroup& self, const std::string& during, ncclResult_t result,
                              const std::string& detail, ExitCode code) {
  int version = 0;
  ncclGetVersion(&version);
  const std::string text =
      fmt::format("{}{}: {}{}{} (NCCL {}); rerun with NCCL_DEBUG=INFO", self.prefix(), during, ncclGetErrorString(result),
                  detail.empty() ? "" : ": ", detail, nccl_version_text(version));
  if (result == ncclInvalidArgument || result == ncclInvalidUsage) return std::make_exception_ptr(std::logic_error(text));
  return std::make_exception_ptr(CommError(code, text));
}

}  // namespace trivet::comm
