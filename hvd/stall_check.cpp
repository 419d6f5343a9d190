#include "hvd/stall_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/printable.h"
#include "hvd/agreement.h"

namespace trivet::hvd {
namespace {
constexpr size_t kNamedTensors = 10;  // in one line
}

std::string StallCheck::warning(const std::vector<Waiting>& waiting, std::chrono::nanoseconds now) {
  std::set<std::string> known;
  std::vector<std::string> texts;
  for (const Waiting& tensor : waiting) {
    if (warn_after_.count() == 0 || now - tensor.since < warn_after_) continue;
    known.insert(tensor.name);
    if (warned_.contains(tensor.name)) continue;
    texts.push_back(fmt::format("{} of \"{}\" (missing: {})", name_of(tensor.collective), printable(tensor.name),
                                ranks_text(tensor.missing)));
  }
  warned_ = std::move(known);
  if (texts.empty()) return "";
  const size_t more = texts.size() > kNamedTensors ? texts.size() - kNamedTensors : 0;
  texts.resize(texts.size() - more);
  return fmt::format(
      "hvd: some ranks have submitted tensors that others have not submitted for {:g} s, and wait for them: {}{}; all ranks "
      "must "
      "run the same operations",
      std::chrono::duration<double>(warn_after_).count(), fmt::join(texts, "; "),
      more ? fmt::format(" and {} more", more) : "");
}

bool StallCheck::failed(const std::vector<Waiting>& waiting, std::chrono::nanoseconds now) const {
  if (fail_after_.count() == 0) return false;
  for (const Waiting& tensor : waiting)
    if (now - tensor.since >= fail_after_) return true;
  return false;
}

}  // namespace trivet::hvd
