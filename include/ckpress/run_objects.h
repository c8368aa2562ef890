/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_OBJECTS_H
#define CKPRESS_RUN_OBJECTS_H
/*
 * Runs in object stores (objects.h; docs/runs.md, "Object stores"). For writing: ckp_run_open with `objects` in its options. Each function here is the
 * one of its name without `_in`, for a run that lies in `in`; `name` is its name in messages, such as a URL. in NULL: the directory `name`.
 */
#include <ckpress/objects.h>
#include <ckpress/run_inspect.h>
#include <ckpress/run_prune.h>
#include <ckpress/run_verify.h>

#ifdef __cplusplus
extern "C" {
#endif

/** base_model: a local path or NULL, as ckp_checkpoint_open_run_on; not looked for in the store. */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_open_run_in(ckp_checkpoint **out, const ckp_objects *in, const char *name, const char *base_model,
                                                           int64_t step, bool verify_payload, ckp_error *err);
CKP_MUST_USE CKP_API ckp_status ckp_run_list_in(const ckp_objects *in, const char *name, int (*fn)(void *user, const ckp_list_entry *e), void *user,
                                                ckp_error *err);
CKP_MUST_USE CKP_API ckp_status ckp_run_inspect_in(const ckp_objects *in, const char *name, ckp_inspect_fn fn, void *user, ckp_error *err);
/** As ckp_verify_with of a run; opt->bases: at most the base model, a local path. */
CKP_MUST_USE CKP_API ckp_status ckp_run_verify_in(const ckp_objects *in, const char *name, const ckp_verify_options *opt, ckp_verified *done,
                                                  ckp_error *err);
CKP_MUST_USE CKP_API ckp_status ckp_run_prune_in(const ckp_objects *in, const char *name, const ckp_retention *rules, bool dry_run,
                                                 void (*fn)(void *user, const ckp_list_entry *e, ckp_fate fate), void *user, ckp_pruned *done,
                                                 ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
