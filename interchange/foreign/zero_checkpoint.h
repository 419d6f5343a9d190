// Checkpoints of DeepSpeed: the float32 weights that ZeRO's ranks hold in parts, put together as zero_to_fp32 does
// (docs/hugging_face.md). Nothing of the files is executed.
//
//   DIR/latest                                                        "global_step200"
//   DIR/global_step200/mp_rank_00_model_states.pt                     names and shapes of the parameters; 16-bit weights
//   DIR/global_step200/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt   rank R's part of the float32 weights
//
//   stages 1, 2   the parameters of a group lie one after another; rank R has the R-th part of that
//   stage 3       rank R has the R-th part of each parameter, padded to equal sizes (zero_pp_rank_R_mp_rank_00_model_states.pt)
//   universal     DIR/STEP/zero/NAME/fp32.pt: whole parameters
//
// Parameters that were not trained are in 16 bits. Checkpoints of several tensor-parallel, pipeline or expert ranks are
// refused.
#pragma once

#include <string>

#include "core/file_system.h"
#include "interchange/foreign/model_source.h"

namespace trivet::foreign {

// `path`: DIR, or the directory of a step in it.
bool is_zero_checkpoint(FileSystem& files, const std::string& path);
// `config`: the model's config.json; empty: it is in one of the two directories. The weights have the names of the model.
ModelSource open_zero_checkpoint(FileSystem& files, const std::string& path, const std::string& config);

}  // namespace trivet::foreign
