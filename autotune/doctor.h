// Examines what a machine offers for training, and what is missing. Each rate is measured for a fraction of a second: it shows
// what to expect, and does not replace a benchmark in bench/.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/enum_names.h"

namespace trivet::autotune {

enum class Health {
  Fine,
  Note,     // works, but with a limitation
  Missing,  // the request will not work
};

struct Finding {
  std::string subject;  // "memory"
  Health health = Health::Fine;
  std::string text;                                     // the finding
  std::string advice;                                   // the next thing to do; empty if all is fine
  std::vector<std::pair<std::string, double>> figures;  // by name, which includes the unit: "copy_bytes_per_second"
};

struct DoctorOptions {
  std::string directory = ".";  // where checkpoints and offloaded states would go
  bool needs_gpu = false;       // report a machine without a GPU as Missing
  int threads = 1;              // for the measurements
  int ranks = 2;                // ranks that communicate inside the host for the measurements
  bool measures = true;
  bool opens_modules = true;  // modules for several hosts stay loaded
  std::string system_root;    // put before /proc, /sys and /dev
};

// Returns the findings in the order in which a person would ask. Never throws because of what it finds.
std::vector<Finding> examine(const DoctorOptions& options);

}  // namespace trivet::autotune

namespace trivet {

template <>
struct EnumNames<autotune::Health> {
  static constexpr std::array<std::pair<std::string_view, autotune::Health>, 3> table{
      {{"ok", autotune::Health::Fine}, {"note", autotune::Health::Note}, {"missing", autotune::Health::Missing}}};
};

}  // namespace trivet
