/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress plan: which step each weight would get for a budget, and why. */
#include <stdlib.h>
#include "json.h"
#include "plan.h"
#include "table.h"

static void
notice(void *user, const char *text)
{
    (void)user;
    cli_note("%s", text);
}

static void
json_row(cli_json *j, const ckp_plan_row *r)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", r->name);
    cli_json_str(j, "role", ckp_role_name(r->role));
    cli_json_u64(j, "elements", r->numel);
    cli_json_double(j, "step", r->step);
    cli_json_num(j, "step_rms", r->step_rms);
    cli_json_num(j, "bits_per_element", r->bits);
    cli_json_num(j, "rms_rel_error", r->error);
    cli_json_num(j, "expected_loss", r->loss);
    cli_json_str(j, "why", r->why);
    cli_json_close(j, '}');
}

static void
print_json(const ckp_plan *p, const ckp_plan_info *i)
{
    cli_json j = {0};
    ckp_plan_row r = {.size = sizeof r};

    cli_json_open(&j, NULL, '{');
    cli_json_bool(&j, "met", i->met);
    cli_json_u64(&j, "params", i->params);
    cli_json_u64(&j, "raw_bytes", i->raw_bytes);
    cli_json_u64(&j, "expected_bytes", i->bytes);
    cli_json_num(&j, "bits_per_param", i->bits_all);
    cli_json_num(&j, "bits_per_planned_weight", i->bits);
    cli_json_num(&j, "rms_rel_error", i->error);
    cli_json_num(&j, "expected_loss", i->loss);
    cli_json_num(&j, "multiplier", i->multiplier);
    cli_json_u64(&j, "encodes", i->encodes);
    cli_json_open(&j, "tensors", '[');
    for (size_t k = 0; k < ckp_plan_count(p); k++) {
        ckp_plan_get_row(p, k, &r);
        json_row(&j, &r);
    }
    cli_json_close(&j, ']');
    cli_json_close(&j, '}');
}

static void
number(cli_table *tab, const char *format, double x, bool known)
{
    cli_text t;
    (void)snprintf(t.s, sizeof t.s, format, x);
    cli_table_add(tab, known ? t.s : "-");
}

static void
print_table(const ckp_plan *p)
{
    static const char *const head[] = {"TENSOR", "ELEMENTS", "STEP", "STEP/RMS", "BITS", "ERROR", "WHY"};
    ckp_plan_row r = {.size = sizeof r};
    cli_table tab;
    cli_text t;

    cli_table_init(&tab, "lrrrrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&tab, head[i]);
    for (size_t i = 0; i < ckp_plan_count(p); i++) {
        ckp_plan_get_row(p, i, &r);
        const bool lossy = r.step > 0.0;
        cli_table_add(&tab, r.name);
        cli_table_add(&tab, cli_count(&t, r.numel));
        number(&tab, "%.3g", r.step, lossy);
        number(&tab, "%.3f", r.step_rms, lossy);
        number(&tab, "%.2f", r.bits, lossy);
        number(&tab, "%.4f", r.error, lossy);
        cli_table_add(&tab, r.why);
    }
    cli_table_print(&tab, 0);
}

static void
print_sum(const ckp_plan_info *i)
{
    cli_text raw, packed, ratio;

    (void)printf("all: %.3f bits a planned weight, RMS error %.4f of each tensor's RMS\n", i->bits, i->error);
    if (i->bytes != 0)
        (void)printf("file: %s of %s (%s), %.3f bits a parameter\n", cli_size(&packed, i->bytes), cli_size(&raw, i->raw_bytes),
                     cli_ratio(&ratio, i->raw_bytes, i->bytes), i->bits_all);
}

static int
plan(const cli_args *a)
{
    ckp_plan *p = NULL;
    ckp_plan_info info = {.size = sizeof info};
    ckp_error e = {0};
    cli_progress bar;
    cli_text t;

    const int usage = cli_has_budget(a) ? cli_check_budget(a) : cli_fail(CLI_USAGE, "plan needs --target-bits, --target-ratio or --max-error.");
    if (usage != CLI_OK)
        return usage;
    cli_progress_start(&bar, a, a->arg[0]);
    const ckp_status st = cli_plan_file(&p, a, a->arg[0], cli_progress_step, &bar, a->quiet ? NULL : notice, &e);
    (void)cli_progress_end(&bar);
    if (st != CKP_OK)
        return cli_told(st, &e);
    ckp_plan_get_info(p, &info);
    if (a->json) {
        print_json(p, &info);
    } else {
        print_table(p);
        print_sum(&info);
    }
    if (!info.met && !a->quiet)
        cli_note("%s: no plan gives %s; this is the nearest", a->arg[0], cli_budget_text(&t, a));
    ckp_plan_free(p);
    return CLI_OK;
}

const cli_command cli_cmd_plan = {
    .name = "plan",
    .args = "FILE",
    .summary = "Show which steps a budget gives each weight, and why",
    .text = "FILE is a safetensors or PyTorch file, or a .ckp. Nothing is written. The steps are those that 'ckpress compress' with the same\n"
            "budget codes with: of all steps that keep to it, those with the least distortion, by one multiplier over all weights. What a\n"
            "weight's bits cost is measured with the real coder on a sample of it; how much its error matters comes from the second moments\n"
            "of the optimizer where the file has them, else from the sizes of the tensors.\n"
            "BITS are expected bits an element, STEP/RMS and ERROR are of the tensor's RMS. WHY: multiplier (the common one decided), small\n"
            "(16 times finer, as in every profile), finest step, coarsest step (no plan goes further), lossless (not coded lossily).\n"
            "\n"
            "  ckpress plan model.safetensors --target-bits 4\n"
            "  ckpress plan model.safetensors --max-error 0.1 --json",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_PROFILE) | CLI_HAS(CLI_OPT_TARGET_BITS) | CLI_HAS(CLI_OPT_TARGET_RATIO) | CLI_HAS(CLI_OPT_MAX_ERROR) |
               CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = 1,
    .run = plan,
};
