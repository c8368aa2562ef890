/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress import: a series of other people's files as a run. */
#include <string.h>
#include "json.h"
#include "plan.h"
#include "table.h"

typedef struct importing { const cli_args *a; cli_table tab; cli_json j; } importing;

static void
notice(void *user, const char *text)
{
    (void)user;
    cli_note("%s", text);
}

static void
tell(void *user, const char *file, uint64_t step, uint64_t in_bytes, uint64_t stored_bytes)
{
    importing *im = user;
    cli_text t;

    if (im->a->json) {
        cli_json_open(&im->j, NULL, '{');
        cli_json_str(&im->j, "file", file);
        cli_json_u64(&im->j, "step", step);
        cli_json_u64(&im->j, "in_bytes", in_bytes);
        cli_json_u64(&im->j, "stored_bytes", stored_bytes);
        cli_json_close(&im->j, '}');
        return;
    }
    if (im->a->quiet)
        return;
    (void)snprintf(t.s, sizeof t.s, "%llu", (unsigned long long)step);
    cli_table_add(&im->tab, t.s);
    cli_table_add(&im->tab, cli_size(&t, in_bytes));
    cli_table_add(&im->tab, cli_size(&t, stored_bytes));
    cli_table_add(&im->tab, cli_ratio(&t, in_bytes, stored_bytes));
    cli_table_add(&im->tab, file);
}

static int
import(const cli_args *a)
{
    static const char *const head[] = {"STEP", "FILE", "STORED", "RATIO", "NAME"};
    importing im = {.a = a};
    ckp_import_options o = CKP_IMPORT_OPTIONS_INIT;
    ckp_imported done = {.size = sizeof done};
    cli_progress bar;
    ckp_error e = {0};

    if (a->output == NULL)
        return cli_fail(CLI_USAGE, "say where: --output RUN.");
    if (a->n_step != 0 && (a->n_step != a->n_arg || a->in_order))
        return cli_fail(CLI_USAGE, a->in_order ? "--step and --in-order exclude each other." : "--step is given once for each file, or not at all.");
    o.coding.profile = cli_profile(a);
    o.coding.quality = a->quality;
    o.coding.threads = a->threads;
    o.coding.effort = a->effort;
    o.coding.progress = cli_progress_step;
    o.coding.progress_user = &bar;
    o.step = a->n_step != 0 ? a->step : NULL;
    o.in_order = a->in_order;
    o.told = tell;
    o.told_user = &im;
    o.notice = a->quiet ? NULL : notice;
    cli_table_init(&im.tab, "rrrrl");
    for (size_t i = 0; !a->json && !a->quiet && i < sizeof head / sizeof *head; i++)
        cli_table_add(&im.tab, head[i]);
    if (a->json)
        cli_json_open(&im.j, NULL, '[');
    cli_progress_start(&bar, a, a->output);
    const ckp_status st = ckp_run_import(a->output, a->arg, a->n_arg, &o, &done, &e);
    (void)cli_progress_end(&bar);
    if (a->json)
        cli_json_close(&im.j, ']');
    else if (im.tab.n > im.tab.columns)
        cli_table_print(&im.tab, 0);
    cli_table_free(&im.tab);
    const int code = cli_told_part(st, &e);
    if (st != CKP_OK && done.checkpoints != 0)
        cli_note("%llu of %zu files were imported before: %s is a run of these", (unsigned long long)done.checkpoints, a->n_arg, a->output);
    return code;
}

const cli_command cli_cmd_import = {
    .name = "import",
    .args = "FILE...",
    .summary = "Make a run of a series of safetensors or PyTorch files",
    .text = "One checkpoint each, in the new run --output, by rising steps: deltas take what successive files have in common. A step is the number in which\n"
            "the paths differ (out/checkpoint-500/model.safetensors, out/checkpoint-1000/model.safetensors); what is not plain is refused before a file\n"
            "is read: then --step says it, once for each file, or --in-order counts from 1. Lossless unless a profile is named; resume and small need\n"
            "the optimizer state in the files. 'ckpress decompress RUN@STEP' gives a safetensors file back as it was.\n"
            "\n"
            "  ckpress import out/checkpoint-*/model.safetensors -o runs/imported\n"
            "  ckpress import first.pt second.pt -o runs/two --step 100 --step 250",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_PROFILE) | CLI_HAS(CLI_OPT_QUALITY) | CLI_HAS(CLI_OPT_STEP) | CLI_HAS(CLI_OPT_IN_ORDER) |
               CLI_HAS(CLI_OPT_FAST) | CLI_HAS(CLI_OPT_BEST) | CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = SIZE_MAX,
    .run = import,
};
