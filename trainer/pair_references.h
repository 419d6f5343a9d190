// The references of a run that trains on pairs of answers: their log-probabilities under the weights that the run begins
// with, which are the reference model. They are computed once, before the first step, so that no second model is in memory. A
// checkpoint keeps them (RunState::reference), because a resumed run no longer has those weights.
//
// Every rank has those of all pairs: 16 bytes for each. They are in the order of the data, whatever samples are made of them.
#pragma once

#include <memory>
#include <string>

#include "data/referenced_source.h"
#include "data/training_data.h"

namespace trivet {
class Engine;
struct Plan;
}  // namespace trivet

namespace trivet::comm {
class World;
}

namespace trivet::trainer {

class PairReferences {
 public:
  explicit PairReferences(const data::TrainingData& data);  // `data` must outlive it

  // Checks whether the data are pairs. Otherwise there is nothing to compute, and the sources are those of the data.
  bool needed() const { return pairs_; }
  // The pairs with their references; they can be read after compute() or restore(). There may be no validation data: null.
  std::shared_ptr<const data::SampleSource> train() const { return pairs_ ? train_ : data_.train(); }
  std::shared_ptr<const data::SampleSource> validation() const { return pairs_ ? validation_ : data_.validation(); }

  // Computes them with the engine's weights, which `weights` identifies. Collective.
  void compute(Engine& engine, comm::World& world, const std::string& weights);
  // Returns the weights that they were computed with; empty: nothing was computed yet.
  const std::string& weights() const { return weights_; }

  const std::string& to_text() const { return text_; }
  // Throws CheckpointError, naming `where`, if the text is not one of as many pairs.
  void restore(const std::string& text, const std::string& where);

 private:
  const data::TrainingData& data_;
  bool pairs_;
  std::shared_ptr<const data::SampleSource> train_pairs_, validation_pairs_;
  std::shared_ptr<data::ReferenceTable> train_table_, validation_table_;
  std::shared_ptr<const data::SampleSource> train_, validation_;
  std::string weights_, text_;
};

}  // namespace trivet::trainer
