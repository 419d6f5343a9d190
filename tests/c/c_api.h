/* What the C part of these tests offers to the C++ part. */
#ifndef TRIVET_TESTS_C_API_H
#define TRIVET_TESTS_C_API_H

#include <trivet/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every function of version 1 with its signature. */
struct signatures {
  uint32_t (*c_version)(void);     /* NOLINT(modernize-redundant-void-arg): needed in C */
  const char* (*last_error)(void); /* NOLINT(modernize-redundant-void-arg) */
  trivet_status (*world_connect)(trivet_world**);
  trivet_status (*run_threads)(int32_t, trivet_status (*)(trivet_world*, void*), void*);
  int32_t (*world_rank)(const trivet_world*);
  int32_t (*world_size)(const trivet_world*);
  trivet_status (*world_close)(trivet_world*);
  void (*world_destroy)(trivet_world*);
  trivet_status (*optimizer_create)(trivet_world*, const char*, const trivet_parameter*, int64_t, const trivet_options*,
                                    trivet_optimizer**);
  void (*optimizer_destroy)(trivet_optimizer*);
  int32_t (*optimizer_units)(const trivet_optimizer*);
  trivet_status (*optimizer_unit_of)(const trivet_optimizer*, int64_t, int32_t*);
  int32_t (*optimizer_dtype)(const trivet_optimizer*);
  trivet_status (*optimizer_weight)(const trivet_optimizer*, int64_t, const void**);
  trivet_status (*optimizer_prefetch)(trivet_optimizer*, int32_t);
  trivet_status (*optimizer_gather)(trivet_optimizer*, int32_t);
  trivet_status (*optimizer_release)(trivet_optimizer*, int32_t);
  trivet_status (*optimizer_add_gradient)(trivet_optimizer*, int64_t, int32_t, const void*);
  trivet_status (*optimizer_gradient)(trivet_optimizer*, int64_t, int32_t*, void**, int32_t*);
  trivet_status (*optimizer_gradient_ready)(trivet_optimizer*, int64_t);
  trivet_status (*optimizer_end_microbatch)(trivet_optimizer*, double, int64_t);
  trivet_status (*optimizer_step)(trivet_optimizer*, trivet_step_report*);
  double (*optimizer_loss_scale)(const trivet_optimizer*);
  double (*optimizer_learning_rate)(const trivet_optimizer*);
  int64_t (*optimizer_steps)(const trivet_optimizer*);
  trivet_status (*optimizer_memory)(const trivet_optimizer*, trivet_memory*);
  trivet_status (*optimizer_save)(trivet_optimizer*, const char*);
  trivet_status (*optimizer_load)(trivet_optimizer*, const char*, int32_t*);
};
extern const struct signatures kSignatures;

/* A job whose model is two vectors, "a" of 6 elements in unit "u" and "b" of 3; the gradient of element i is i + 1 on every
 * rank, in both microbatches of a step. */
enum { A_ELEMENTS = 6, B_ELEMENTS = 3 };
struct job {
  const char* config; /* JSON */
  int steps;
  const char* directory; /* of checkpoints; NULL: none */
  int load, save;        /* before the first and after the last step */
  int in_place;          /* writes gradients in place */
  /* Set by rank 0. */
  int32_t found;
  trivet_step_report last;
  trivet_memory memory;
  float a[A_ELEMENTS], b[B_ELEMENTS];
};
trivet_status run_job(trivet_world* world, void* job);

#ifdef __cplusplus
}
#endif

#endif
