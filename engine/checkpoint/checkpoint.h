// Includes everything that an engine needs for checkpoints:
//
//   checkpoint::CheckpointStore store(real_file_system(), {.directory = "checkpoints", .run_id = run_id, .keep = 3});
//   store.acquire(ranks);                                            // locks the directory and removes leftovers
//   if (auto last = store.open_latest(ranks)) last->read(pieces);    // whatever layout wrote it
//   store.save({.step = 200, .pieces = pieces, .state = state, .config = config}, ranks);
//
// The format is described in docs/checkpoint_format.md.
#pragma once

#include "engine/checkpoint/async_saver.h"       // saving while training continues
#include "engine/checkpoint/checkpoint_store.h"  // the directory: save, newest valid step, lock, retention
#include "engine/checkpoint/compare.h"           // two checkpoints, tensor by tensor
#include "engine/checkpoint/job_hosts.h"         // the ranks that share a host
#include "engine/checkpoint/loaded_step.h"       // a committed step, open for reading
#include "engine/checkpoint/piece.h"             // the part of a tensor that a rank holds
#include "engine/checkpoint/together.h"          // the ranks, and how they meet
