// All that a program which embeds Trivet needs; each header opens with what it is for.
//
//   find_package(trivet 0.1 REQUIRED)
//   target_link_libraries(program PRIVATE trivet::trivet)
#pragma once

#include "comm/world.h"                     // run_threads, connect: the ranks of a job
#include "core/error.h"                     // what can go wrong, as types with exit codes
#include "core/layer.h"                     // the contract of a layer of one's own
#include "engine/checkpoint/checkpoint.h"   // saving beside training, loading on another layout
#include "engine/config/load.h"             // JSON -> Config
#include "engine/data/dataset.h"            // text or token file -> tokens
#include "engine/data/microbatch_loader.h"  // tokens -> this rank's microbatches
#include "engine/engine.h"                  // Plan -> Engine: train_batch, evaluate, save, load
#include "engine/plan.h"                    // Config + model + ranks -> Plan
#include "engine/trainer.h"                 // a whole job as `trivet train` runs it
#include "model/check_gradients.h"          // the proof of a layer of one's own
#include "model/model.h"                    // GPT and Llama style models, or a list of layers of one's own
#include "zero/parameter_group.h"           // sharding alone, for trainers with a model of their own
