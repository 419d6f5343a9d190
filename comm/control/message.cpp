#include "comm/control/message.h"

#include <array>

namespace trivet::comm::control {

const char* name_of(size_t kind) {
  constexpr std::array<const char*, std::variant_size_v<Message>> kNames{
      "a Join", "a Welcome", "a Refuse",  "a Parent", "an Attach", "an Announce", "a Heartbeat",
      "a Set",  "an Accuse", "an Arrive", "a Met",    "an Ask",    "a Missing",   "a Bye"};
  return kNames.at(kind);
}

std::string name_of(const Message& message) { return name_of(message.index()); }

}  // namespace trivet::comm::control
