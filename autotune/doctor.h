// What a machine has for training, and what is missing for what. Rates are measured, a fraction of a second each; they say what
// to expect, not what a benchmark in bench/ would.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/enum_names.h"

namespace trivet::autotune {

enum class Health {
  Fine,
  Note,     // works, with something to know
  Missing,  // what was asked for will not work
};

struct Finding {
  std::string subject;  // "memory"
  Health health = Health::Fine;
  std::string text;                                     // what is there
  std::string advice;                                   // what to do; empty where all is fine
  std::vector<std::pair<std::string, double>> figures;  // by a name that has their unit: "copy_bytes_per_second"
};

struct DoctorOptions {
  std::string directory = ".";  // where checkpoints and offloaded states would go
  bool needs_gpu = false;       // a machine without one is not fine
  int threads = 1;              // of the measurements
  bool measures = true;
  std::string system_root;  // before /proc, /sys and /dev
};

// In the order in which a person would ask. Never throws for what it finds.
std::vector<Finding> examine(const DoctorOptions& options);

}  // namespace trivet::autotune

namespace trivet {

template <>
struct EnumNames<autotune::Health> {
  static constexpr std::array<std::pair<std::string_view, autotune::Health>, 3> table{
      {{"ok", autotune::Health::Fine}, {"note", autotune::Health::Note}, {"missing", autotune::Health::Missing}}};
};

}  // namespace trivet
