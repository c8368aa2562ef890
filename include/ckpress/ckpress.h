/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_H
#define CKPRESS_H
/* Everything: see optim.h for resident optimizers, run.h for runs, run_copy.h, run_diff.h and run_prune.h for runs at rest, run_file.h for files, run_plan.h for plans, state.h for what is saved. */
#include <ckpress/base.h>
#include <ckpress/optim.h>
#include <ckpress/plan.h>
#include <ckpress/run.h>
#include <ckpress/run_copy.h>
#include <ckpress/run_diff.h>
#include <ckpress/run_file.h>
#include <ckpress/run_inspect.h>
#include <ckpress/run_plan.h>
#include <ckpress/run_prune.h>
#include <ckpress/state.h>
#endif
