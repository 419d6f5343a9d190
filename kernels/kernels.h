// All kernels: the interface and the arguments of each. Headers that only pass kernels on include kernels/interface.h.
#pragma once

#include "kernels/attention.h"
#include "kernels/channel_norm.h"
#include "kernels/convolution.h"
#include "kernels/ctc.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/interface.h"
#include "kernels/losses.h"
#include "kernels/memory.h"
#include "kernels/norms.h"
#include "kernels/optimizers.h"
#include "kernels/preference.h"
#include "kernels/products.h"
#include "kernels/quantization.h"
#include "kernels/sums.h"
#include "kernels/token_choice.h"
