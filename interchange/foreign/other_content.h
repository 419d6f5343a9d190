// Recognizes what a file holds instead of weights: a text, a page of HTML that a download left, an archive and so on.
#pragma once

#include "core/file_system.h"

namespace trivet::foreign {

// Throws CheckpointError (Usage) that says what the file is and what to do, if its first bytes tell (data/file_kind.h).
// `expected`: "a file of safetensors".
void refuse_other_content(const ReadableFile& file, const char* expected);

}  // namespace trivet::foreign
