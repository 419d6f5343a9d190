// The part that models have in common that normalize what attention and MLP add, and not what they read: OLMo 2 and 3 and
// EXAONE 4.
#pragma once

#include "interchange/hugging_face/llama_like.h"

namespace trivet::hugging_face {

void add_norms_after(OrderedJson& model);
// Returns why such a model cannot be stored as one of them. `rest`: its part in common with Llama, to be checked as such.
std::string norms_after_obstacle(const model::Description& d, model::Description& rest);
checkpoint::MappedSource::Table weights_with_norms_after(const model::Description& d);

}  // namespace trivet::hugging_face
