// Holds what each host has combined of its own ranks' values, a few chunks at a time: the terms of an exchange between hosts.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/operation_header.h"
#include "comm/reduce.h"

namespace trivet::comm {

class HostTerms {
 public:
  HostTerms(int64_t chunks, int hosts, int64_t bytes)
      : chunks_(chunks), hosts_(hosts), bytes_(bytes), memory_(new std::byte[static_cast<size_t>(chunks * hosts * bytes)]) {}
  std::byte* at(int64_t chunk, int host) { return memory_.get() + (chunk % chunks_ * hosts_ + host) * bytes_; }
  // Combines those of all hosts, in their order, and rounds.
  void combine(const OperationHeader& header, int64_t chunk, std::byte* to, int64_t count) {
    std::vector<const void*> from;
    for (int host = 0; host < hosts_; ++host) from.push_back(at(chunk, host));
    void *const sum[] = {at(chunk, 0)}, *const rounded[] = {to};
    reduce(sum_type(header.dtype), header.reduce, from, sum, count);
    round_sum(header.dtype, at(chunk, 0), rounded, count);
  }

 private:
  int64_t chunks_, hosts_, bytes_;
  std::unique_ptr<std::byte[]> memory_;  // not zeroed: everything is written before it is read
};

}  // namespace trivet::comm
