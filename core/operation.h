// The operations between ranks, by name.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/enum_names.h"

namespace trivet {

enum class Operation : uint8_t { AllReduce, ReduceScatter, AllGather, Broadcast, AllToAll, AllToAllV, Send, Receive, Barrier };

template <>
struct EnumNames<Operation> {
  static constexpr std::array<std::pair<std::string_view, Operation>, 9> table{{{"all_reduce", Operation::AllReduce},
                                                                                {"reduce_scatter", Operation::ReduceScatter},
                                                                                {"all_gather", Operation::AllGather},
                                                                                {"broadcast", Operation::Broadcast},
                                                                                {"all_to_all", Operation::AllToAll},
                                                                                {"all_to_all_v", Operation::AllToAllV},
                                                                                {"send", Operation::Send},
                                                                                {"receive", Operation::Receive},
                                                                                {"barrier", Operation::Barrier}}};
};

}  // namespace trivet
