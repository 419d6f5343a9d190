#include "interchange/foreign/model_source.h"

#include <fmt/format.h>

#include "data/hash.h"

namespace trivet::foreign {

std::string ModelSource::digest() const {
  data::StreamingHash hash;
  hash.add(fmt::format("{} {}", config, tensors->digest()));
  return fmt::format("xxh3 {}", data::hexadecimal(hash.value()));
}

}  // namespace trivet::foreign
