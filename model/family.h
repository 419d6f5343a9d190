// The families of models that `model.type` names. To add one: a name in Type and EnumNames (model/description.h), a file that
// makes its Family (model/transformer.cpp makes two), and an element of families(). If it needs new keys: members of
// Description and lines of engine/config/table_model.cpp.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/description.h"
#include "model/model.h"

namespace trivet::model {

struct Family {
  Type type;
  std::string_view meaning;                           // for the documents
  std::span<const std::string_view> own_keys;         // keys of the section "model" that have no effect in other families
  int64_t (*feed_forward_size)(int64_t hidden_size);  // the default
  std::string_view feed_forward_note;                 // the same in words
  bool tied_embedding;                                // the default
  std::optional<Problem> (*find_problem)(const Description&);  // beyond what all families require
  Model (*build)(const Description&);                          // of a description that is complete and without problems
};

std::span<const Family> families();
const Family& family_of(Type type);

}  // namespace trivet::model
