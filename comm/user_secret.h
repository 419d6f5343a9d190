// The secret of a user on one host, for ranks that were not given one. It keeps other users out of jobs whose
// ranks meet on the loopback interface, without any setup.
//
//   $XDG_RUNTIME_DIR/trivet/secret      where XDG_RUNTIME_DIR is a directory of this user
//   /tmp/trivet-UID/secret              elsewhere
//
// The directory has mode 700, the file mode 600, both belong to the user; anything else is refused, because another user may
// have put it there. Whichever rank comes first creates the file: it is complete before it gets its name, and if two ranks come
// at the same time, one of them wins and both read that file.
#pragma once

#include <string>

#include "comm/secret.h"

namespace trivet::comm {

// The directory described above. `runtime_directory` is XDG_RUNTIME_DIR and may be empty.
std::string user_secret_directory(const std::string& runtime_directory);
// Throws ConfigError, which names the directory and suggests TRIVET_SECRET_FILE instead.
Secret user_secret(const std::string& directory);

}  // namespace trivet::comm
