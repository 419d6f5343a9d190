// The files of --enable_each_rank_log. What ranks print may hold the address of a live page with its token, so nobody but the
// user may read it, and the folder may be one in which others can create files, such as one in /tmp.
#pragma once

#include <string>

#include "core/descriptor.h"

namespace trivet::cli {

// Opens FOLDER/rank_N.WHAT, a file of mode 600, for writing, and creates the folder if it is not there. A first start replaces
// what an earlier job of this user has left; a restart adds to it. Throws ConfigError for a link, a file of another user or one
// that is no regular file, and for a folder that belongs to another user or in which all users may replace files.
Descriptor open_rank_log(const std::string& folder, int rank, const std::string& what, bool is_restart);

}  // namespace trivet::cli
