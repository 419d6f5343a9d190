// Token ids as the rest of the program reads them, whatever file or text they come from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trivet::data {

// A sequence of token ids, read only. Shared by all ranks of a process.
class TokenSequence {
 public:
  virtual ~TokenSequence() = default;
  virtual int64_t tokens() const = 0;
  virtual int64_t vocabulary_size() const = 0;
  // out[i] = token first + i
  virtual void read(int64_t first, std::span<int32_t> out) const = 0;
  // Where documents end: how many tokens precede the end of each, ascending; the last is tokens(). Empty if the data does not
  // say. Reads all of an index or a file.
  virtual std::vector<int64_t> document_ends() const { return {}; }
  // Checks whether documents come in pairs: a prompt with the preferred answer, then with the rejected one.
  virtual bool has_pairs() const { return false; }
  // Checks whether the loss ignores any tokens.
  virtual bool marks_prompts() const { return false; }
  // Sets to -1 those of the targets first, first + 1 ... that the loss ignores.
  virtual void ignore(int64_t /*first*/, std::span<int32_t> /*targets*/) const {}
  // Identifies the data by its sizes and a hash, so that a resumed run can tell that it has changed (exit code 18).
  virtual std::string digest() const = 0;
};

}  // namespace trivet::data
