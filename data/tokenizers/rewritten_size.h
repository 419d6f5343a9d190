// Rules in a tokenizer's file rewrite text. A few of them, one after the other, can turn two bytes into gigabytes, so the
// result is bounded: Unicode's own rules make at most 12 bytes of one.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/error.h"
#include "data/data_error.h"

namespace trivet::data {

inline constexpr size_t kMostRewrittenTimes = 32, kMostRewrittenMore = 4096;

class RewrittenSize {
 public:
  // `source`: the tokenizer's file, for the message; it must outlive this.
  RewrittenSize(size_t text_bytes, const std::string& source)
      : text_bytes_(text_bytes), most_(kMostRewrittenTimes * text_bytes + kMostRewrittenMore), source_(source) {}

  // Throws DataError. Called while the result grows, before it has grown much beyond the bound.
  void check(size_t bytes) const {
    if (bytes > most_)
      bad_file(source_, fmt::format("its rules make more than {} bytes of a text of {}, the most that is accepted ({} for each "
                                    "byte, and {}); is the tokenizer damaged?",
                                    most_, text_bytes_, kMostRewrittenTimes, kMostRewrittenMore));
  }

 private:
  size_t text_bytes_, most_;
  const std::string& source_;
};

}  // namespace trivet::data
