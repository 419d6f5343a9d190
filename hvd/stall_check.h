// Warns of tensors that some ranks have submitted and others have not, each once.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "hvd/request_table.h"

namespace trivet::hvd {

class StallCheck {
 public:
  // Zero: never.
  StallCheck(std::chrono::nanoseconds warn_after, std::chrono::nanoseconds fail_after)
      : warn_after_(warn_after), fail_after_(fail_after) {}

  // The line to print, "" if there is nothing new. To be called after every round.
  std::string warning(const std::vector<Waiting>& waiting, std::chrono::nanoseconds now);
  // Checks whether a tensor has waited so long that all of them shall fail.
  bool failed(const std::vector<Waiting>& waiting, std::chrono::nanoseconds now) const;

 private:
  std::chrono::nanoseconds warn_after_, fail_after_;
  std::set<std::string> warned_;
};

}  // namespace trivet::hvd
