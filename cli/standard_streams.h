// Keeps output from holding up a long command, and a reader that has gone from ending it: commands that train, search
// or prepare treat their output as `trivet launch` does (cli/launch/output.h).
//
//   printf, std::cout            --stdout--> Output --> descriptor 1
//   Log, fmt::print(stderr, ...) --stderr--> Output --> descriptor 2    one Output for one file, to keep the order
//
// Text that the reader takes is written at once, so that it is not lost if the process ends abruptly. Other text stays in a
// queue, which a thread empties; what the queue has no room for is dropped, counted and reported at the end.
#pragma once

#include <functional>

namespace trivet::cli {

enum class Printing {
  Progress,  // the command's results are elsewhere
  Result,    // the printed text is the result, and perhaps the reason for the command
};

// Runs the command with such streams. An output that cannot be written (the reader has gone, the disk is full) is reported once
// on stderr. At the end, unread text is dropped if nobody has read for 2 seconds; but if the command has succeeded, its Result
// waits for its reader like that of any program. Throws Error (Usage) if a Result could not be written for another reason than
// that its reader has gone. SIGPIPE and SIGXFSZ stay ignored.
void print_without_waiting(Printing what, const std::function<void()>& command);

}  // namespace trivet::cli
