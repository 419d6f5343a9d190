/**
 * @file c.h
 * @brief Trivet for programs in C, and in every language that can call C.
 *
 * A trainer that has its own model and computes its own gradients takes ZeRO 1 to 3, bucketed sums over ranks, optimizers and
 * checkpoints from Trivet. The C++ class behind these functions is trivet::embed::ShardedOptimizer; docs/embedding.md explains
 * both, and examples/07_c_trainer is a complete program.
 *
 * Rules that hold for all functions:
 *
 *   - A function that can fail returns a ::trivet_status. Anything but ::TRIVET_OK is an error, and trivet_last_error() has its
 *     text: what happened, to what, what is accepted. No C++ exception ever leaves a function.
 *   - A failed function leaves its results as they were.
 *   - ::TRIVET_USAGE from a function of an optimizer means that the call came at the wrong time or with wrong arguments, and
 *     that it changed nothing. After every other error the optimizer can only be destroyed.
 *   - Handles are opaque. What a `_create` or `_connect` function returns, the caller destroys with the `_destroy` function.
 *   - Strings are UTF-8, end with 0, and belong to whom the function says. Counts are in elements unless their name says bytes.
 *   - One thread at a time may use a handle and everything made from it. Different handles are independent.
 *   - All ranks of a job call the collective functions together, with the same arguments, in the same order.
 *
 * Stability: within a major version, functions, constants and members keep their names, types, values and meanings; minor
 * versions add functions, constants, and members at the end of structs. The first member of each struct is its size in bytes as
 * the program was compiled, which is how the library knows which members there are. Set it to sizeof the struct.
 */
#ifndef TRIVET_C_H
#define TRIVET_C_H

#include <stddef.h>
#include <stdint.h>

/** @brief Marks what the library exports. */
#define TRIVET_C_API __attribute__((visibility("default")))

/** @brief Major version of this header; the library's must be the same. */
#define TRIVET_C_MAJOR 1
/** @brief Minor version of this header; the library's must be the same or higher. */
#define TRIVET_C_MINOR 0

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Outcome of a function: one of the TRIVET_ constants below. They are also the exit codes of `trivet`. */
typedef int32_t trivet_status;

/** @brief Values of ::trivet_status. */
enum {
  TRIVET_OK = 0,                      /**< Done. */
  TRIVET_USAGE = 2,                   /**< A wrong argument or config, or a call at the wrong time. */
  TRIVET_PEER_LOST = 10,              /**< Another rank died or left with an error. */
  TRIVET_NO_PROGRESS = 11,            /**< Another rank did not arrive before the deadline. */
  TRIVET_RANKS_DISAGREE = 12,         /**< Ranks made different calls, or hold different data. */
  TRIVET_RENDEZVOUS = 13,             /**< The ranks of the job did not find each other. */
  TRIVET_CHECKPOINT_NOT_WRITTEN = 14, /**< A checkpoint could not be written; older ones are as they were. */
  TRIVET_CHECKPOINT_CORRUPT = 15,     /**< A checkpoint is damaged. */
  TRIVET_NUMERICS = 16,               /**< Gradients were not finite in too many steps in a row. */
  TRIVET_DATA_CHANGED = 18,           /**< Not the outcome of any function of version 1.0. */
  TRIVET_OUT_OF_MEMORY = 19,          /**< Memory could not be allocated. */
  TRIVET_VERSION_SKEW = 20,           /**< Ranks run different versions of Trivet. */
  TRIVET_STORAGE = 21,                /**< A file could not be read or written. */
  TRIVET_DEVICE = 22,                 /**< Not the outcome of any function of version 1.0. */
  TRIVET_INTERNAL = 70                /**< A defect in Trivet, or an exception of unknown type. */
};

/** @brief Types of the elements of tensors. */
enum {
  TRIVET_FLOAT32 = 0,  /**< IEEE single precision. */
  TRIVET_BFLOAT16 = 1, /**< The upper half of a float32. */
  TRIVET_FLOAT16 = 2,  /**< IEEE half precision. */
  TRIVET_FLOAT64 = 3   /**< IEEE double precision; for gradients only. */
};

/** @brief Bits of trivet_parameter::flags. */
enum {
  TRIVET_NO_DECAY = 1,    /**< Weight decay does not apply: biases, norms. */
  TRIVET_FROZEN = 2,      /**< The parameter has no gradient and no optimizer state. */
  TRIVET_INPUT_LAYER = 4, /**< An embedding table: Muon leaves it to Adam. */
  TRIVET_LOSS_LAYER = 8   /**< The output projection: Muon leaves it to Adam. */
};

/** @brief One rank's place in a job, and its connections to the other ranks. */
typedef struct trivet_world trivet_world;
/** @brief A sharded optimizer: weights, gradients and optimizer states of one rank. */
typedef struct trivet_optimizer trivet_optimizer;

/** @brief What a trainer says about one parameter. */
typedef struct trivet_parameter {
  size_t size;      /**< sizeof(trivet_parameter). */
  const char* name; /**< Unique; checkpoints keep the parameter under it. */
  const char* unit; /**< Parameters of one unit are gathered, summed and released together. NULL: a bucket with neighbours. */
  const int64_t* shape; /**< Sizes of the dims, outermost first; `dims` of them, each at least 1. NULL if `dims` is 0. */
  int32_t dims;         /**< 0 to 6; 0: a single element. */
  uint32_t flags;       /**< TRIVET_NO_DECAY ... or-ed together; 0: none. */
  const float* values;  /**< Initial values, row-major; rank 0's count and must be finite. NULL on all ranks: zeros. */
} trivet_parameter;

/** @brief Options of trivet_optimizer_create() that are not part of the config. */
typedef struct trivet_options {
  size_t size;             /**< sizeof(trivet_options). */
  int64_t bucket_elements; /**< Most elements in a bucket of parameters without a unit; 0: 25 MiB of float32. */
  int32_t threads;         /**< For the optimizer's arithmetic; 0: 1. */
  int32_t reserved;        /**< Must be 0. */
} trivet_options;

/** @brief Outcome of trivet_optimizer_step(). */
typedef struct trivet_step_report {
  size_t size; /**< sizeof(trivet_step_report), set by the caller. */
  double loss; /**< Sum of the losses of all ranks divided by the sum of their counts; the same bits on all ranks. NaN if
                    all counts are 0: such a step is skipped; or if a loss was not finite, or 2^95 or more. */
  double gradient_norm; /**< Before clipping; NaN when not finite. */
  double learning_rate; /**< That the step used. */
  int64_t steps;        /**< Steps done, including this one and skipped ones. */
  int64_t updates;      /**< Steps that were not skipped. */
  int32_t skipped;      /**< 1: gradients were not finite, or all counts 0, and nothing changed; else 0. */
  int32_t reserved;     /**< 0. */
} trivet_step_report;

/** @brief Memory of this rank at its peak, by category, in bytes. What the trainer itself allocates is not in it. */
typedef struct trivet_memory {
  size_t size;             /**< sizeof(trivet_memory), set by the caller. */
  int64_t parameter_bytes; /**< Weights that are held between steps. */
  int64_t gradient_bytes;  /**< Gradients that are held during a step. */
  int64_t optimizer_bytes; /**< Optimizer states, and float32 master weights if the weights are not float32. */
  int64_t buffer_bytes;    /**< Gathered weights, gradients in flight, scratch. */
} trivet_memory;

/** @name Versions and errors
 *  @{ */

/**
 * @brief The version of the library.
 * @return major * 65536 + minor.
 */
TRIVET_C_API uint32_t trivet_c_version(void);

/**
 * @brief The text of the last error of this thread.
 * @return Empty if there was none. It belongs to the library and is valid until the thread's next call of a function that
 * fails.
 */
TRIVET_C_API const char* trivet_last_error(void);

/** @} */
/** @name Ranks
 *  @{ */

/**
 * @brief Makes this process one rank of the job that the environment describes (docs/environment.md): RANK and WORLD_SIZE,
 * Slurm, MPI ... or a job of one rank if it describes none. Collective.
 * @param[out] world The new handle.
 * @return ::TRIVET_OK, ::TRIVET_USAGE, ::TRIVET_RENDEZVOUS, ::TRIVET_VERSION_SKEW or another error of communication.
 */
TRIVET_C_API trivet_status trivet_world_connect(trivet_world** world);

/**
 * @brief What one rank of trivet_run_threads() does.
 * @param world This rank's world. It belongs to trivet_run_threads(): neither close nor destroy it.
 * @param user What the caller gave to trivet_run_threads().
 * @return ::TRIVET_OK, or an error that ends the job: the other ranks get ::TRIVET_PEER_LOST.
 */
typedef trivet_status (*trivet_rank_function)(trivet_world* world, void* user);

/**
 * @brief Runs `body` once for each rank, each on a thread of this process, and returns when all have ended.
 * @param ranks Number of ranks, at least 1.
 * @param body What each rank does.
 * @param user Passed to `body`; shared by all ranks.
 * @return ::TRIVET_OK if all ranks returned that, otherwise the error of the rank that failed first.
 */
TRIVET_C_API trivet_status trivet_run_threads(int32_t ranks, trivet_rank_function body, void* user);

/**
 * @brief This rank's number, from 0.
 * @param world A world.
 * @return -1 if `world` is NULL.
 */
TRIVET_C_API int32_t trivet_world_rank(const trivet_world* world);

/**
 * @brief The number of ranks of the job.
 * @param world A world.
 * @return -1 if `world` is NULL.
 */
TRIVET_C_API int32_t trivet_world_size(const trivet_world* world);

/**
 * @brief The regular end of a job: all ranks meet, and after that leaving is no loss. Collective. Destroy optimizers before.
 * @param world From trivet_world_connect().
 * @return ::TRIVET_OK or an error of communication.
 */
TRIVET_C_API trivet_status trivet_world_close(trivet_world* world);

/**
 * @brief Frees a world. If it was not closed, the other ranks consider this one lost.
 * @param world From trivet_world_connect(); may be NULL.
 */
TRIVET_C_API void trivet_world_destroy(trivet_world* world);

/** @} */
/** @name Optimizers
 *  @{ */

/**
 * @brief Registers parameters, takes their initial values, and allocates this rank's weights, gradients and states. Collective.
 *
 * The config is the JSON of `trivet train` (docs/config.md): zero_optimization, optimizer, scheduler, bf16, fp16,
 * gradient_clipping, gradient_accumulation_steps, reproducible ...
 * @param world Must outlive the optimizer.
 * @param config_json The config, a JSON object.
 * @param parameters `count` structs, all with the same `size`. Nothing that they point to is used after the call.
 * @param count Number of parameters, at least 1.
 * @param options NULL: the defaults.
 * @param[out] optimizer The new handle.
 * @return ::TRIVET_OK, ::TRIVET_USAGE, ::TRIVET_RANKS_DISAGREE, ::TRIVET_OUT_OF_MEMORY or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_create(trivet_world* world, const char* config_json,
                                                   const trivet_parameter* parameters, int64_t count,
                                                   const trivet_options* options, trivet_optimizer** optimizer);

/**
 * @brief Frees an optimizer and the weights that it owns. Not collective between steps; in the middle of one it waits for sums
 * that have begun, until the other ranks have taken part in them or are lost.
 * @param optimizer May be NULL.
 */
TRIVET_C_API void trivet_optimizer_destroy(trivet_optimizer* optimizer);

/**
 * @brief The number of units, of those that the parameters name and of buckets. They are counted from 0.
 * @param optimizer An optimizer.
 * @return -1 if `optimizer` is NULL.
 */
TRIVET_C_API int32_t trivet_optimizer_units(const trivet_optimizer* optimizer);

/**
 * @brief The unit of a parameter.
 * @param optimizer An optimizer.
 * @param parameter Its index in the list of trivet_optimizer_create().
 * @param[out] unit The unit's number.
 * @return ::TRIVET_OK or ::TRIVET_USAGE.
 */
TRIVET_C_API trivet_status trivet_optimizer_unit_of(const trivet_optimizer* optimizer, int64_t parameter, int32_t* unit);

/**
 * @brief The type of all weights: TRIVET_FLOAT32, or TRIVET_BFLOAT16 or TRIVET_FLOAT16 if the config enables bf16 or fp16.
 * @param optimizer An optimizer.
 * @return -1 if `optimizer` is NULL.
 */
TRIVET_C_API int32_t trivet_optimizer_dtype(const trivet_optimizer* optimizer);

/**
 * @brief Where the whole weights of a parameter are, row-major, of type trivet_optimizer_dtype(). The trainer only reads them.
 *
 * Below stage 3 the address never changes. At stage 3 it is valid from trivet_optimizer_gather() to trivet_optimizer_release().
 * @param optimizer An optimizer.
 * @param parameter Its index.
 * @param[out] data The address.
 * @return ::TRIVET_OK, or ::TRIVET_USAGE if there is no such parameter or its unit is not whole.
 */
TRIVET_C_API trivet_status trivet_optimizer_weight(const trivet_optimizer* optimizer, int64_t parameter, const void** data);

/**
 * @brief Starts to make a unit whole, without waiting. Collective.
 * @param optimizer An optimizer.
 * @param unit The unit's number.
 * @return ::TRIVET_OK, ::TRIVET_USAGE or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_prefetch(trivet_optimizer* optimizer, int32_t unit);

/**
 * @brief Makes a unit whole and waits for it. Calls may be nested. Needed at stage 3 only. Collective.
 * @param optimizer An optimizer.
 * @param unit The unit's number.
 * @return ::TRIVET_OK, ::TRIVET_USAGE or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_gather(trivet_optimizer* optimizer, int32_t unit);

/**
 * @brief Ends what one trivet_optimizer_gather(), or a prefetch alone, began. Collective.
 * @param optimizer An optimizer.
 * @param unit The unit's number.
 * @return ::TRIVET_OK, ::TRIVET_USAGE or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_release(trivet_optimizer* optimizer, int32_t unit);

/**
 * @brief Adds the gradient of a parameter in this microbatch. It may start the sum of its unit over ranks, in the background
 * with overlap_comm. Once for each parameter and microbatch, in any order; parameters left out count as zeros, on one
 * rank or on all.
 * @param optimizer An optimizer.
 * @param parameter Its index.
 * @param dtype TRIVET_FLOAT32 ...
 * @param data The gradient of trivet_optimizer_loss_scale() x the loss, row-major, of as many elements as the parameter has.
 * The caller may change or free it after the call.
 * @return ::TRIVET_OK, ::TRIVET_USAGE, ::TRIVET_NUMERICS (after as many skipped steps in a row as training.stop_after_skipped
 * says) or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_add_gradient(trivet_optimizer* optimizer, int64_t parameter, int32_t dtype,
                                                         const void* data);

/**
 * @brief The same without a copy: where to put the gradient. Call trivet_optimizer_gradient_ready() when it is there.
 * @param optimizer An optimizer.
 * @param parameter Its index.
 * @param[out] dtype The type to write: TRIVET_FLOAT32, TRIVET_BFLOAT16 or TRIVET_FLOAT16.
 * @param[out] data Where to write it, row-major, as many elements as the parameter has. The memory is the optimizer's, and
 * valid until trivet_optimizer_gradient_ready().
 * @param[out] accumulate 1: add to what is there; 0: overwrite it.
 * @return ::TRIVET_OK, ::TRIVET_USAGE or ::TRIVET_NUMERICS, as trivet_optimizer_add_gradient().
 */
TRIVET_C_API trivet_status trivet_optimizer_gradient(trivet_optimizer* optimizer, int64_t parameter, int32_t* dtype,
                                                     void** data, int32_t* accumulate);

/**
 * @brief The gradient that trivet_optimizer_gradient() made room for is complete. Its memory must not be used after that.
 * @param optimizer An optimizer.
 * @param parameter Its index.
 * @return ::TRIVET_OK, ::TRIVET_USAGE or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_gradient_ready(trivet_optimizer* optimizer, int64_t parameter);

/**
 * @brief Ends a microbatch; a step has gradient_accumulation_steps of them on each rank. Collective.
 * @param optimizer An optimizer.
 * @param loss The sum of `count` losses. Gradients are those of this sum, times the loss scale.
 * @param count How many losses `loss` is the sum of, at least 0; 1 for a mean. A step's gradient is the sum over the
 * microbatches of all ranks, divided by the sum of the counts.
 * @return ::TRIVET_OK, ::TRIVET_USAGE, ::TRIVET_NUMERICS (as trivet_optimizer_add_gradient()) or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_end_microbatch(trivet_optimizer* optimizer, double loss, int64_t count);

/**
 * @brief Updates the weights. All units must be released. Collective.
 * @param optimizer An optimizer.
 * @param[out] report NULL: not wanted. Otherwise its `size` must be set.
 * @return ::TRIVET_OK, also for a step that is skipped; ::TRIVET_USAGE, ::TRIVET_NUMERICS (gradients overflow at the smallest
 * loss scale) or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_step(trivet_optimizer* optimizer, trivet_step_report* report);

/**
 * @brief What the trainer multiplies its loss by before it computes gradients; 1 unless the config enables fp16.
 * @param optimizer An optimizer.
 * @return NaN if `optimizer` is NULL.
 */
TRIVET_C_API double trivet_optimizer_loss_scale(const trivet_optimizer* optimizer);

/**
 * @brief The learning rate of the next step.
 * @param optimizer An optimizer.
 * @return NaN if `optimizer` is NULL.
 */
TRIVET_C_API double trivet_optimizer_learning_rate(const trivet_optimizer* optimizer);

/**
 * @brief Steps done, including skipped ones and those before a checkpoint that was loaded.
 * @param optimizer An optimizer.
 * @return -1 if `optimizer` is NULL.
 */
TRIVET_C_API int64_t trivet_optimizer_steps(const trivet_optimizer* optimizer);

/**
 * @brief This rank's memory at its peak.
 * @param optimizer An optimizer.
 * @param[out] memory Its `size` must be set.
 * @return ::TRIVET_OK or ::TRIVET_USAGE.
 */
TRIVET_C_API trivet_status trivet_optimizer_memory(const trivet_optimizer* optimizer, trivet_memory* memory);

/**
 * @brief Saves weights, optimizer states and progress, between steps (docs/checkpoint_format.md). Collective.
 * @param optimizer An optimizer.
 * @param directory The directory of checkpoints, which all ranks share.
 * @return ::TRIVET_OK, ::TRIVET_USAGE, ::TRIVET_CHECKPOINT_NOT_WRITTEN, ::TRIVET_RANKS_DISAGREE (copies of weights differ) or
 * an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_save(trivet_optimizer* optimizer, const char* directory);

/**
 * @brief Continues from the newest valid checkpoint, whatever number of ranks and stage wrote it. Collective.
 * @param optimizer An optimizer.
 * @param directory The directory of checkpoints.
 * @param[out] found 1: loaded; 0: there is none, and nothing changed.
 * @return ::TRIVET_OK, ::TRIVET_USAGE (also if the checkpoint lacks a parameter, or has it with another shape),
 * ::TRIVET_CHECKPOINT_CORRUPT or an error of communication.
 */
TRIVET_C_API trivet_status trivet_optimizer_load(trivet_optimizer* optimizer, const char* directory, int32_t* found);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
