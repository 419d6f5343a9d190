// Reads the bits of losses from a file of metrics (jsonl.h).
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>

namespace trivet::monitor {

// The "loss_bits" of the steps first to last, by step; steps that the file lacks and steps
// without targets are left out. Throws DataError (Usage) that
// names `source`, the line and what is wrong with it.
std::map<int64_t, uint32_t> read_loss_bits(std::istream& lines, const std::string& source, int64_t first, int64_t last);
// Reads the same from a file; throws a DataError that says why it cannot be read.
std::map<int64_t, uint32_t> read_loss_bits(const std::string& path, int64_t first, int64_t last);

}  // namespace trivet::monitor
