// All layouts of a model on a cluster, tried with the StepModel: which is fastest of those that fit, and why the others lose.
//
// Nothing is sampled. What cannot be (an axis that does not divide the model or the batch) is left out, what cannot fit is
// known by its states alone before its time is asked for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autotune/step_model.h"

namespace trivet::autotune {

struct SearchSpace {
  int64_t devices = 1;
  int64_t train_batch_size = 1;   // sequences of a step
  int64_t most_microbatch = 64;   // sequences
  int64_t most_tensor = 0;        // 0: a node
  bool sequence_parallel = true;  // with tensor ranks, where they divide the tokens
  bool fixed_sums = false;        // reproducible "layout": tensor sizes for which model::check_fixed_sums holds
  std::vector<int> zero_stages{0, 1, 2, 3};
  StateTypes types;
};
// What the engine accepts with the rest of this config. Throws ConfigError where it has no train_batch_size.
SearchSpace search_space(const Config& config, int64_t devices);

struct Candidate {
  Layout layout;
  StepPrediction step;
};

// A value of one choice that the best layout does not have: how far the best layout with it is behind, and by what.
struct Alternative {
  std::string choice;  // "tensor 8", "stage 1"
  bool fits = false;
  Candidate best;   // of those that have it; the one that needs least memory where none fits
  std::string why;  // "12.3 GiB over", "31 % slower: tensor axis 37 % of the step (9 %)"
};

struct SearchResult {
  std::vector<Candidate> ranking;  // that fit, the fastest first
  std::vector<Alternative> alternatives;
  Candidate smallest;  // least memory of all
  int64_t tried = 0, fitting = 0;
  double seconds = 0;  // that the search took
};

// Throws ConfigError where no layout divides the model and the batch among so many devices, saying what does.
SearchResult search(const model::Model& model, const Cluster& cluster, const SearchSpace& space, size_t ranked = 20);

// "pipeline 8 x data 16 x tensor 8, interleaved with 2 chunks, ZeRO-1, microbatch 1 x 16, recompute full, sequence parallel"
std::string to_string(const Layout& layout);
// A table of the ranking and why the others lose; where nothing fits, what is short.
std::string to_text(const SearchResult& result, const Cluster& cluster);
std::string to_json(const SearchResult& result, const Cluster& cluster);

}  // namespace trivet::autotune
