// The files of --enable_each_rank_log. Ranks' text may hold the address of a live page with its token, so nobody but
// the user may read it, and the folder may be one in which others can create files, such as one in /tmp.
//
// A launcher replaces only logs that a launcher has written. It knows them by the sticky bit of their mode (1600), which Linux
// gives no meaning for files, and which no copy or editor sets; where a file system does not keep it, earlier logs have to be
// removed.
#pragma once

#include <string>
#include <vector>

#include "core/descriptor.h"
#include "core/named_files.h"

namespace trivet::cli {

// The logs that these ranks write, in the order of the ranks.
std::vector<std::string> paths_of_rank_logs(const std::string& folder, const std::vector<int>& ranks);

// Throws ConfigError if one of these logs would replace a file that no launcher wrote, a file that the job reads, as far as
// `inputs` name them, or a file that a word of the program's command names. To be called before the first is opened.
void check_rank_logs(const std::string& folder, const std::vector<int>& ranks, const std::vector<NamedFile>& inputs,
                     const std::vector<std::string>& program);

// Opens FOLDER/rank_N.WHAT, a file that only this user can read, for writing, and creates the folder if it is not there. A
// first start replaces what an earlier job of this user has left; a restart adds to it. Throws ConfigError for a link, a file
// of another user, one that no launcher wrote or one that is no regular file, and for a folder that belongs to another user or
// in which all users may replace files.
Descriptor open_rank_log(const std::string& folder, int rank, const std::string& what, bool is_restart);

// Ranks write to their logs themselves, and few programs notice that a write failed. Returns a line for the user if the disk of
// the folder is full, else nothing, as for no folder.
std::string lines_that_may_be_lost(const std::string& folder);

}  // namespace trivet::cli
