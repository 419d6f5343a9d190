// Everything that a program needs to embed Trivet; each header begins by saying what it is for.
//
//   find_package(trivet 0.1 REQUIRED)
//   target_link_libraries(program PRIVATE trivet::trivet)
#pragma once

#include "comm/world.h"                    // run_threads, connect: the ranks of a job
#include "core/error.h"                    // the errors, as types with exit codes
#include "core/layer.h"                    // the interface for your own layers
#include "data/dataset.h"                  // text or token file -> tokens
#include "data/microbatch_loader.h"        // samples -> this rank's microbatches
#include "data/token_source.h"             // tokens -> samples
#include "embed/sharded_optimizer.h"       // ZeRO, optimizers and checkpoints for trainers with their own model
#include "engine/checkpoint/checkpoint.h"  // saving while training, loading on another layout
#include "engine/config/load.h"            // JSON -> Config
#include "engine/engine.h"                 // Plan -> Engine: train_batch, evaluate, save, load
#include "engine/plan.h"                   // Config + model + ranks -> Plan
#include "hvd.h"                           // Horovod's interface, for trainers with their own model and data parallelism
#include "model/check_gradients.h"         // checks the gradients of your own layers
#include "model/model.h"                   // GPT and Llama style models, or a list of your own layers
#include "trainer/load_with_model.h"       // a config whose model is that of a folder of Hugging Face's
#include "trainer/open_data.h"             // the data that a config names
#include "trainer/trainer.h"               // a complete job, as `trivet train` runs it
#include "zero/parameter_group.h"          // only the sharding, for trainers with their own model
