// What ranks print, in the order it comes, whole lines only, each with its rank in front.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "comm/descriptor.h"

namespace trivet::cli {

class Relay {
 public:
  // The descriptor to give to the rank as its stdout or stderr; lines go to `target`.
  comm::Descriptor add(int rank, int target);
  void add_to(std::vector<pollfd>& entries) const;
  // Passes on what is there.
  void step();
  // What is still unfinished, too.
  void finish();

 private:
  struct Source {
    comm::Descriptor pipe;
    std::string prefix;
    int target;
    std::string line;
  };
  void read(Source& source);
  std::vector<Source> sources_;
};

void write_all(int descriptor, const std::string& text);

}  // namespace trivet::cli
