// The family "sequential": models of images that are a list of layers (model.network), each of which takes the output of the
// one before, and a softmax over the outputs of the last.
//
//   images [B, C, H, W] -> "1.conv" -> "2.relu" -> ... -> "9.dense" -> logits [B, classes] -> "loss"
//
// A layer's name in the model is its number in the list and its kind.
#pragma once

#include "model/family.h"

namespace trivet::model {

Family sequential_family();

}  // namespace trivet::model
