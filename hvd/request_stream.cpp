#include "hvd/request_stream.h"

#include "hvd/bytes.h"

namespace trivet::hvd {
namespace {
constexpr uint32_t kNotRemembered = ~uint32_t{0};
}

void RequestWriter::write(const Request& request, std::string& message) {
  std::string bytes = encode(request);
  if (const auto found = slot_of_.find(bytes); found != slot_of_.end()) return append(message, found->second);
  append(message, kNotRemembered);
  append_text(message, bytes);
  if (slots_.empty()) return;
  const size_t slot = next_++ % slots_.size();
  slot_of_.erase(slots_[slot]);
  slots_[slot] = bytes;
  slot_of_.emplace(std::move(bytes), static_cast<uint32_t>(slot));
}

std::vector<Request> RequestReader::read(std::string_view message) {
  std::vector<Request> requests;
  for (ByteReader in(message); !in.at_end();) {
    const auto slot = in.number<uint32_t>();
    if (slot != kNotRemembered) {
      if (slot >= slots_.size() || !slots_[slot]) ByteReader::refuse();
      requests.push_back(*slots_[slot]);
      continue;
    }
    requests.push_back(decode(in.text()));
    if (!slots_.empty()) slots_[next_++ % slots_.size()] = std::make_shared<const Request>(requests.back());
  }
  return requests;
}

}  // namespace trivet::hvd
