// The families of models that `model.type` names. To add one: a name in Type and EnumNames (model/description.h), a file that
// makes its Family (model/transformer.cpp makes two), and an element of families(). If it needs new keys: members of
// Description and lines of engine/config/table_model.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/description.h"
#include "model/model.h"

namespace trivet::model {

struct Family {
  Type type;
  std::string_view meaning;                 // for the documents
  std::span<const std::string_view> keys;   // keys of the section "model" that have an effect in this family
  std::string_view feed_forward_note = {};  // the default of feed_forward_size in words, if the family has that key
  bool tied_embedding = false;              // the default
  bool reads_images = false;  // samples are images, each of one class; otherwise tokens, whose vocabulary data decide

  Description (*with_defaults)(const Description&);
  int64_t (*block_count)(const Description&);
  std::string (*blocks_in_words)(const Description&);
  std::string (*in_words)(const Description&);  // without the name: "12 layers x 768, vocabulary 256"
  // Finds a problem in a description whose defaults are filled in.
  std::optional<Problem> (*find_problem)(const Description&);
  Model (*build)(const Description&);  // it has no problem
  // See model::tensor_problem.
  std::string (*tensor_problem)(const Description& given, int64_t ranks, bool fixed_sums);
};

std::span<const Family> families();
const Family& family_of(Type type);

}  // namespace trivet::model
