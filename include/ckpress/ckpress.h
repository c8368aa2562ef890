/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_H
#define CKPRESS_H
/* Everything: see run.h for runs, run_objects.h for object stores, run_copy.h, run_diff.h, run_prune.h, run_repair.h, run_rewrite.h and run_verify.h for runs at rest,
   run_file.h and run_export.h for files, run_plan.h for plans, optim.h for resident optimizers, state.h for what is saved. */
#include <ckpress/base.h>
#include <ckpress/objects.h>
#include <ckpress/optim.h>
#include <ckpress/optim_policy.h>
#include <ckpress/plan.h>
#include <ckpress/run.h>
#include <ckpress/run_copy.h>
#include <ckpress/run_diff.h>
#include <ckpress/run_export.h>
#include <ckpress/run_file.h>
#include <ckpress/run_group.h>
#include <ckpress/run_inspect.h>
#include <ckpress/run_objects.h>
#include <ckpress/run_plan.h>
#include <ckpress/run_prune.h>
#include <ckpress/run_repair.h>
#include <ckpress/run_rewrite.h>
#include <ckpress/run_verify.h>
#include <ckpress/state.h>
#endif
