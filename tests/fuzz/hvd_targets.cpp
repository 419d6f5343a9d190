// Fuzz target for what ranks tell each other about their tensors (hvd/request_stream.h).
#include "hvd/request_stream.h"
#include "hvd/request_table.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {

// The input is one message; the same requests are then written and read again, and matched in a table of one rank.
void hvd_requests(std::string_view input) {
  constexpr int kCapacity = 4;
  std::vector<hvd::Request> requests;
  if (!accepts({ExitCode::VersionSkew}, [&] { requests = hvd::RequestReader(kCapacity).read(input); })) return;
  hvd::RequestWriter writer(kCapacity);
  std::string message;
  for (const hvd::Request& request : requests) writer.write(request, message);
  const auto again = hvd::RequestReader(kCapacity).read(message);
  require(again.size() == requests.size(), "every request is read again");
  hvd::RequestTable table({0});
  for (size_t i = 0; i < requests.size(); ++i) {
    require(hvd::encode(again[i]) == hvd::encode(requests[i]), "a request is read as it was written");
    accepts({ExitCode::VersionSkew}, [&] { table.add(0, requests[i], {}); });
  }
  for (const hvd::Agreed& agreed : table.take_ready()) require(agreed.problem.empty(), "one rank agrees with itself");
}

}  // namespace trivet::fuzz
