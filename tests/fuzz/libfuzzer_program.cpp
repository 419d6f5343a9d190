// The function that libFuzzer calls. TRIVET_FUZZ_TARGET says which target of targets.h gets the bytes (scripts/fuzz sets it).
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace {

const trivet::fuzz::Target& chosen_target() {
  const char* name = std::getenv("TRIVET_FUZZ_TARGET");
  for (const trivet::fuzz::Target& target : trivet::fuzz::targets())
    if (name && target.name == name) return target;
  std::fprintf(stderr, "fuzz_parsers: TRIVET_FUZZ_TARGET must name one of");
  for (const trivet::fuzz::Target& target : trivet::fuzz::targets()) std::fprintf(stderr, " %s", target.name.data());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const trivet::fuzz::Target& target = chosen_target();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
