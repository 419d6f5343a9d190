// Memory that costs nothing until it is used: only addresses are reserved, and the system gives pages when they are touched.
//
// The program of a foreign trainer is not known, so the peak of its buffers cannot be planned as an Engine's can. An arena over
// reserved memory uses the lowest addresses first; what it has used at its peak (Arena::peak_bytes) is what it costs.
#pragma once

#include "core/buffer.h"

namespace trivet::embed {

Allocator& reserved_memory();  // stateless

}  // namespace trivet::embed
