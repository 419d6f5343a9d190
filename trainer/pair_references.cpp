#include "trainer/pair_references.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "core/base64.h"
#include "core/error.h"
#include "data/microbatch_loader.h"
#include "engine/engine.h"

namespace trivet::trainer {
namespace {

using data::ReferenceTable;

constexpr const char* kNone = "-";

size_t table_size(const std::shared_ptr<const data::SampleSource>& pairs) {
  return pairs ? 2 * static_cast<size_t>(pairs->pairs()) : 0;
}

// Keeps the log-probabilities that the loss layer of this rank computes.
class AnswerReader final : public LogitsReader {
 public:
  AnswerReader(const data::SampleSource& pairs, ReferenceTable& table) : pairs_(pairs), table_(table) {}

  int64_t wants(const Microbatch&) const override { return 0; }
  void read(kernels::Kernels&, const Microbatch&, int64_t, ConstTensorView, int64_t) override {}
  // Samples after the last one are padding.
  void read_answers(kernels::Kernels& kernels, const Microbatch& microbatch, ConstTensorView log_probabilities) override {
    std::vector<double> values(static_cast<size_t>(log_probabilities.elements()));
    kernels.to_host(log_probabilities, {values.data(), DType::Float64, {log_probabilities.elements()}});
    std::vector<int64_t> answers(static_cast<size_t>(pairs_.spec().reference_of(1).elements()));
    int64_t sample = microbatch.first_sample / pairs_.spec().rows();
    for (size_t done = 0; done < values.size() && sample < pairs_.samples(); done += answers.size(), ++sample) {
      pairs_.fill_answers(sample, answers);
      for (size_t i = 0; i < answers.size(); ++i)
        if (answers[i] >= 0) table_.at(static_cast<size_t>(answers[i])) = values[done + i];
    }
  }

 private:
  const data::SampleSource& pairs_;
  ReferenceTable& table_;
};

// Each number comes from one rank, the first context and tensor rank of the last stage that has the pair; the others contribute
// zeros.
ReferenceTable log_probabilities(Engine& engine, comm::World& world, const std::shared_ptr<const data::SampleSource>& pairs) {
  const BatchLayout layout = engine.plan().batch_layout(world.rank());
  const data::EvaluationLoader loader(pairs, layout.micro_batch);
  const int64_t rounds = (loader.batches() + layout.data_size - 1) / layout.data_size;
  ReferenceTable table(table_size(pairs));
  AnswerReader reader(*pairs, table);
  data::HostMicrobatch batch;
  const auto next = [&](int64_t round) {
    loader.fill(round * layout.data_size + layout.data_rank, batch);
    return batch.view;
  };
  engine.evaluate(rounds, next, &reader);
  const Coordinates place = engine.plan().mesh.coordinates_of(world.rank());
  if (place[Axis::Tensor] != 0 || place[Axis::Context] != 0) std::ranges::fill(table, 0);
  if (world.size() == 1) return table;
  const auto stream = make_inline_stream();
  world.group().all_reduce({table.data(), DType::Float64, {static_cast<int64_t>(table.size())}}, comm::ReduceOp::Sum, *stream);
  return table;
}

std::string text_of(const ReferenceTable& table) {
  return to_base64({reinterpret_cast<const char*>(table.data()), table.size() * sizeof(double)});
}

// Checks whether the text is that of a table of this size.
bool read_table(const std::string& text, ReferenceTable& table, size_t size) {
  const auto bytes = from_base64(text);
  if (!bytes || bytes->size() != size * sizeof(double)) return false;
  table.resize(size);
  std::memcpy(table.data(), bytes->data(), bytes->size());
  return std::ranges::all_of(table, [](double value) { return std::isfinite(value); });
}

std::shared_ptr<const data::SampleSource> with_table(const std::shared_ptr<const data::SampleSource>& pairs,
                                                     const std::shared_ptr<ReferenceTable>& table) {
  return pairs ? std::make_shared<data::ReferencedSource>(pairs, table) : nullptr;
}

}  // namespace

PairReferences::PairReferences(const data::TrainingData& data)
    : data_(data),
      pairs_(data.train()->spec().pairs),
      train_table_(std::make_shared<ReferenceTable>()),
      validation_table_(std::make_shared<ReferenceTable>()) {
  if (!pairs_) return;
  train_pairs_ = data.train();
  validation_pairs_ = data.validation();
  train_ = with_table(train_pairs_, train_table_);
  validation_ = with_table(validation_pairs_, validation_table_);
}

void PairReferences::compute(Engine& engine, comm::World& world, const std::string& weights) {
  weights_ = weights;
  *train_table_ = log_probabilities(engine, world, train_pairs_);
  if (validation_pairs_) *validation_table_ = log_probabilities(engine, world, validation_pairs_);
  const auto check = [](const ReferenceTable& table) {
    const auto bad = std::ranges::find_if(table, [](double value) { return !std::isfinite(value); });
    if (bad == table.end()) return;
    throw NumericsError(fmt::format("the weights that the run begins with give an answer of pair {} the log-probability {}",
                                    (bad - table.begin()) / 2 + 1, *bad));
  };
  check(*train_table_);
  check(*validation_table_);
  text_ = fmt::format("{} {} {}", text_of(*train_table_), validation_pairs_ ? text_of(*validation_table_) : kNone, weights_);
}

void PairReferences::restore(const std::string& text, const std::string& where) {
  std::istringstream words(text);
  std::string train, validation, weights;
  words >> train >> validation >> std::ws;
  std::getline(words, weights);
  const bool fits =
      read_table(train, *train_table_, table_size(train_pairs_)) &&
      (validation_pairs_ ? read_table(validation, *validation_table_, table_size(validation_pairs_)) : validation == kNone) &&
      !weights.empty();
  if (!fits)
    throw CheckpointError(ExitCode::CheckpointCorrupt,
                          fmt::format("{}: the log-probabilities of the reference model are not those of {} pairs; resume from "
                                      "another step",
                                      where, train_pairs_->pairs()));
  weights_ = weights;
  text_ = text;
}

}  // namespace trivet::trainer
