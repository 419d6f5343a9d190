/* What version 1 of trivet/c.h promises, as the compiler sees it: a change of any of this breaks programs that were compiled
 * with an older header. The numbers are those of 64-bit Linux. Minor versions may only add members at the end, and functions.
 */
#include <trivet/c.h>

#include "tests/c/c_api.h"

#define MEMBER(type, member, offset, member_type)                                 \
  _Static_assert(offsetof(type, member) == (offset), #type "." #member " moved"); \
  _Static_assert(_Generic(((type*)0)->member, member_type : 1, default : 0), #type "." #member " has another type")

_Static_assert(sizeof(void*) == 8, "these offsets are those of a 64-bit system");

MEMBER(trivet_parameter, size, 0, size_t);
MEMBER(trivet_parameter, name, 8, const char*);
MEMBER(trivet_parameter, unit, 16, const char*);
MEMBER(trivet_parameter, shape, 24, const int64_t*);
MEMBER(trivet_parameter, dims, 32, int32_t);
MEMBER(trivet_parameter, flags, 36, uint32_t);
MEMBER(trivet_parameter, values, 40, const float*);
_Static_assert(sizeof(trivet_parameter) == 48, "trivet_parameter of version 1.0");

MEMBER(trivet_options, size, 0, size_t);
MEMBER(trivet_options, bucket_elements, 8, int64_t);
MEMBER(trivet_options, threads, 16, int32_t);
MEMBER(trivet_options, reserved, 20, int32_t);
_Static_assert(sizeof(trivet_options) == 24, "trivet_options of version 1.0");

MEMBER(trivet_step_report, size, 0, size_t);
MEMBER(trivet_step_report, loss, 8, double);
MEMBER(trivet_step_report, gradient_norm, 16, double);
MEMBER(trivet_step_report, learning_rate, 24, double);
MEMBER(trivet_step_report, steps, 32, int64_t);
MEMBER(trivet_step_report, updates, 40, int64_t);
MEMBER(trivet_step_report, skipped, 48, int32_t);
MEMBER(trivet_step_report, reserved, 52, int32_t);
_Static_assert(sizeof(trivet_step_report) == 56, "trivet_step_report of version 1.0");

MEMBER(trivet_memory, size, 0, size_t);
MEMBER(trivet_memory, parameter_bytes, 8, int64_t);
MEMBER(trivet_memory, gradient_bytes, 16, int64_t);
MEMBER(trivet_memory, optimizer_bytes, 24, int64_t);
MEMBER(trivet_memory, buffer_bytes, 32, int64_t);
_Static_assert(sizeof(trivet_memory) == 40, "trivet_memory of version 1.0");

_Static_assert(TRIVET_C_MAJOR == 1, "a new major version needs a new version of this file, and of c/exports.map");
_Static_assert(TRIVET_OK == 0 && TRIVET_USAGE == 2 && TRIVET_PEER_LOST == 10 && TRIVET_NO_PROGRESS == 11 &&
                   TRIVET_RANKS_DISAGREE == 12 && TRIVET_RENDEZVOUS == 13 && TRIVET_CHECKPOINT_NOT_WRITTEN == 14 &&
                   TRIVET_CHECKPOINT_CORRUPT == 15 && TRIVET_NUMERICS == 16 && TRIVET_DATA_CHANGED == 18 &&
                   TRIVET_OUT_OF_MEMORY == 19 && TRIVET_VERSION_SKEW == 20 && TRIVET_STORAGE == 21 && TRIVET_DEVICE == 22 &&
                   TRIVET_INTERNAL == 70,
               "values of trivet_status");
_Static_assert(TRIVET_FLOAT32 == 0 && TRIVET_BFLOAT16 == 1 && TRIVET_FLOAT16 == 2 && TRIVET_FLOAT64 == 3, "values of dtypes");
_Static_assert(TRIVET_NO_DECAY == 1 && TRIVET_FROZEN == 2 && TRIVET_INPUT_LAYER == 4 && TRIVET_LOSS_LAYER == 8,
               "values of flags");
_Static_assert(_Generic((trivet_status)0, int32_t : 1, default : 0), "trivet_status has another type");

/* The signatures: an assignment to a pointer of another type does not compile. */
const struct signatures kSignatures = {
    trivet_c_version,
    trivet_last_error,
    trivet_world_connect,
    trivet_run_threads,
    trivet_world_rank,
    trivet_world_size,
    trivet_world_close,
    trivet_world_destroy,
    trivet_optimizer_create,
    trivet_optimizer_destroy,
    trivet_optimizer_units,
    trivet_optimizer_unit_of,
    trivet_optimizer_dtype,
    trivet_optimizer_weight,
    trivet_optimizer_prefetch,
    trivet_optimizer_gather,
    trivet_optimizer_release,
    trivet_optimizer_add_gradient,
    trivet_optimizer_gradient,
    trivet_optimizer_gradient_ready,
    trivet_optimizer_end_microbatch,
    trivet_optimizer_step,
    trivet_optimizer_loss_scale,
    trivet_optimizer_learning_rate,
    trivet_optimizer_steps,
    trivet_optimizer_memory,
    trivet_optimizer_save,
    trivet_optimizer_load,
};
