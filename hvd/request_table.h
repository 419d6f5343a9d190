// Tracks which rank has submitted which tensor. Every rank of a process set has the same table, because all of them learn the
// same requests in the same rounds; so all decide alike, without a coordinator, what runs next and in which order.
//
//   add(rank, request) ... take_ready() -> what every rank has submitted, in the order in which the names were first seen
//
// Not thread-safe: it belongs to the thread of its process set.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "hvd/request.h"

namespace trivet::hvd {

// A tensor that is ready: all ranks have submitted it, except those that have joined.
struct Agreed {
  std::string name;
  std::vector<std::optional<Request>> by_rank;  // by rank of the process set; none: that rank has joined
  // If it cannot run: what all ranks that have submitted it are told. "" otherwise.
  std::string problem;
  ExitCode code = ExitCode::RanksDisagree;

  const Request& any() const;  // the request of the first rank that has one
};

// A tensor that some ranks have submitted and others have not.
struct Waiting {
  std::string name;
  Collective collective;
  std::vector<int> missing;  // world ranks
  std::chrono::nanoseconds since{};
};

class RequestTable {
 public:
  // The world ranks of the process set's ranks: messages name ranks by them.
  explicit RequestTable(std::vector<int> world_ranks);

  // Returns whether the rank is the first to submit a tensor of this name. Throws CommError (VersionSkew) for a request that is
  // not for this number of ranks.
  bool add(int rank, Request request, std::chrono::nanoseconds now);
  // A rank that has joined counts as one that has submitted everything; one that has left fails what it has not submitted.
  void set_joined(int rank) { joined_[rank] = true; }
  void set_left(int rank) { left_[rank] = true; }
  // Once all ranks have joined, none has.
  void end_join();

  std::vector<Agreed> take_ready();
  std::vector<Waiting> waiting() const;
  // Takes everything out as failed, because some rank has waited too long.
  std::vector<Agreed> take_stalled();

 private:
  struct Entry {
    int64_t number = 0;  // in the order of first requests
    std::chrono::nanoseconds since{};
    std::vector<std::optional<Request>> by_rank;
  };

  bool ready(const Entry& entry) const;
  std::vector<int> missing(const Entry& entry) const;
  std::string left_problem(const Entry& entry) const;

  std::vector<int> world_ranks_;
  std::vector<bool> joined_, left_;
  std::map<std::string, Entry> entries_;
  int64_t next_number_ = 0;
};

}  // namespace trivet::hvd
