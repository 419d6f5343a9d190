// Text as samples that hold whole documents. Inputs after the last document are padding, whose targets are -1.
//
//   S = 8                        documents  aaaaa bbb cc ddddddddddd
//   packing "whole"              aaaaabbb.  cc.......  dddddddd  dddd.....     as many documents as fit, in their order
//   packing "single"             aaaaa....  bbb......  cc.......  dddddddd  dddd.....
//   packing "isolated"           aaaabb..   dddddddd   c.ddd...                as many as fit, each by itself
//
// A sample reads up to S + 1 tokens: the last one is only a target. A document of more tokens is cut into pieces, and the last
// token of a piece is the first of the next, so that each token but the document's first is a target once. With "whole", the
// next documents follow the last piece. No document is asked to predict the first token of the next one, but within a sample
// the tokens of a document attend to those of the documents before it, and positions count from the beginning of the sample.
//
// With "isolated" they do neither: positions count from the beginning of each document, or piece, which trains as it would in a
// sample of its own (SampleSpec::documents). Only inputs take places, so that a document of n tokens takes n - 1. Each goes
// into the first sample that has room for it (first fit), in the order of the data, which no seed changes.
#pragma once

#include <memory>
#include <vector>

#include "data/first_fit.h"
#include "data/options.h"
#include "data/sample_source.h"
#include "data/token_sequence.h"

namespace trivet::data {

class DocumentSource final : public SampleSource {
 public:
  struct Options {
    int64_t sequence_length = 0;
    Packing packing = Packing::Whole;  // not Auto, not Stream
    LossOn loss_on = LossOn::Completions;
  };
  // Throws DataError if the tokens do not say where documents end, or if no document has two tokens.
  DocumentSource(std::shared_ptr<const TokenSequence> tokens, const Options& options);

  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return pieces_of_samples_.samples(); }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  void fill_documents(int64_t sample, std::span<int32_t> first_tokens) const override;
  bool may_lack_targets() const override { return may_lack_targets_; }
  bool has_targets(int64_t sample) const override;
  std::string digest() const override;

  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }
  int64_t cut_documents() const { return cut_documents_; }  // documents that do not fit into a sample
  double padding() const;                                   // share of the places of all samples

 private:
  // Neighbouring tokens of the data: a document or several, or a part of one.
  struct Piece {
    int64_t first, tokens;
  };
  void add_document(int64_t begin, int64_t end);
  void put_pieces_where_they_fit();
  // Sets to -1 those targets of the piece that the loss does not count.
  void ignore(const Piece& piece, std::span<int32_t> targets) const;

  std::shared_ptr<const TokenSequence> tokens_;
  Options options_;
  SampleSpec spec_;
  std::vector<int64_t> ends_;  // ends of documents
  std::vector<Piece> pieces_;  // in the order of the data
  FittedItems pieces_of_samples_;
  int64_t cut_documents_ = 0;
  bool may_lack_targets_;
};

}  // namespace trivet::data
