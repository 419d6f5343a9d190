// The secret of a user on one host, for ranks that nobody gave one: jobs whose ranks meet on the loopback interface are then
// closed to other users without anything to set up.
//
//   $XDG_RUNTIME_DIR/trivet/secret      where XDG_RUNTIME_DIR is a directory of this user
//   /tmp/trivet-UID/secret              elsewhere
//
// The directory has mode 700, the file mode 600, both belong to the user; anything else is refused, because another user may
// have put it there. The file is made by whichever rank comes first: it is complete before it has its name, and when two ranks
// come at the same time one name wins and both read that file.
#pragma once

#include <string>

#include "comm/secret.h"

namespace trivet::comm {

// The directory: see above. `runtime_directory` is XDG_RUNTIME_DIR, may be empty.
std::string user_secret_directory(const std::string& runtime_directory);
// Throws ConfigError, which names the directory and TRIVET_SECRET_FILE as the way out.
Secret user_secret(const std::string& directory);

}  // namespace trivet::comm
