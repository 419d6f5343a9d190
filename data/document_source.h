// Text as samples that hold whole documents. Inputs after the last document are padding, whose targets are -1.
//
//   S = 8                        documents  aaaaa bbb cc ddddddddddd
//   packing "whole"              aaaaabbb.  cc.......  dddddddd  dddd.....     as many documents as fit, in their order
//   packing "single"             aaaaa....  bbb......  cc.......  dddddddd  dddd.....
//
// A sample reads up to S + 1 tokens: the last one is only a target. A document of more tokens is cut into pieces, and the last
// token of a piece is the first of the next, so that each token but the document's first is a target once. With "whole", the
// next documents follow the last piece. No document is asked to predict the first token of the next one, but within a sample
// the tokens of a document attend to those of the documents before it, and positions count from the beginning of the sample.
#pragma once

#include <memory>
#include <vector>

#include "data/options.h"
#include "data/sample_source.h"
#include "data/token_sequence.h"

namespace trivet::data {

class DocumentSource final : public SampleSource {
 public:
  struct Options {
    int64_t sequence_length = 0;
    Packing packing = Packing::Whole;  // not Stream
    LossOn loss_on = LossOn::Completions;
  };
  // Throws DataError if the tokens do not say where documents end, or if no document has two tokens.
  DocumentSource(std::shared_ptr<const TokenSequence> tokens, const Options& options);

  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return static_cast<int64_t>(samples_.size()); }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  bool may_lack_targets() const override { return may_lack_targets_; }
  bool has_targets(int64_t sample) const override;
  std::string digest() const override;

  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }
  int64_t cut_documents() const { return cut_documents_; }  // documents that do not fit into a sample
  double padding() const;                                   // share of the places of all samples

 private:
  struct Sample {
    int64_t first, tokens;
  };
  void add_document(int64_t begin, int64_t end);
  // Sets to -1 those targets of the sample that the loss does not count.
  void ignore(const Sample& sample, std::span<int32_t> targets) const;

  std::shared_ptr<const TokenSequence> tokens_;
  Options options_;
  SampleSpec spec_;
  std::vector<int64_t> ends_;  // ends of documents
  std::vector<Sample> samples_;
  int64_t cut_documents_ = 0;
  bool may_lack_targets_;
};

}  // namespace trivet::data
