// The family "sequential": models of images that are a list of layers (model.network), each of which takes the output of the
// one before, and a loss.
//
//   images [B, C, H, W] -> "1.conv" -> "2.relu" -> ... -> "9.dense" -> logits [B, classes] -> "loss"
//
// Between layers there are images [B, C, H, W], sequences of tokens [B, T, W] or lists of numbers [B, N]. A list may end with
// "ctc", a loss of its own for sequences of characters.
//
// A layer's name in the model is its number in the list and its kind.
#pragma once

#include "model/family.h"

namespace trivet::model {

Family sequential_family();

}  // namespace trivet::model
