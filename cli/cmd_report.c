/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress report: one page about a run. */
#define _POSIX_C_SOURCE 200809L  /* open_memstream */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "output.h"
#include "place.h"
#include "report.h"

/* runs/gpt/ -> runs/gpt-report.html */
static char *
page_name(const char *run)
{
    static const char ending[] = "-report.html";
    size_t n = strlen(run);

    while (n > 1 && run[n - 1] == '/')
        n--;
    char *out = cli_alloc(n + sizeof ending);
    (void)memcpy(out, run, n);
    (void)memcpy(out + n, ending, sizeof ending);
    return out;
}

/* The page is made in memory, so that a full disk leaves nothing and the file appears whole. Its size is bounded by what it shows. */
static int
write_page(cli_output *o, const report *r)
{
    char *page = NULL;
    size_t n = 0;

    FILE *f = open_memstream(&page, &n);
    if (f == NULL)
        return cli_fail(CLI_BUSY, "no memory for the page");
    report_page(f, r);
    const bool failed = ferror(f) != 0;
    int code = fclose(f) != 0 || failed ? cli_fail(CLI_BUSY, "no memory for the page") : CLI_OK;
    if (code == CLI_OK)
        code = cli_output_put(o, page, n);
    free(page);
    return code == CLI_OK ? cli_output_commit(o) : code;
}

static int
page_to(const report *r, const char *path, const cli_args *a)
{
    cli_output o = {0};

    int code = cli_output_open(&o, path, a->force);
    if (code == CLI_OK)
        code = write_page(&o, r);
    cli_output_free(&o);
    return code;
}

static int
check_place(const cli_place *p, const char *arg)
{
    if (p->has_step)
        return cli_fail(CLI_USAGE, "%s: a report is about a whole run, not a step; 'ckpress info' describes one checkpoint.", arg);
    if (!p->is_run && access(arg, F_OK) == 0)
        return cli_fail(CLI_USAGE, "%s: a report is about a run's directory; 'ckpress info' describes a file.", arg);
    return CLI_OK;
}

static void
say(const report *r, const char *path)
{
    cli_text t;

    if (report_bad(r) != 0)
        cli_note("%zu of %zu checkpoints are damaged or lack a base; the page names them", report_bad(r), r->n);
    if (r->n == 0)
        cli_note("%s: no checkpoint yet", r->path);
    if (strcmp(path, "-") != 0) {
        cli_safe(stderr, r->path);
        (void)fprintf(stderr, ": %s checkpoint%s -> ", cli_count(&t, r->n), r->n == 1 ? "" : "s");
        cli_safe(stderr, path);
        (void)fputc('\n', stderr);
    }
}

static int
report_run(const cli_args *a)
{
    cli_place place;
    report r = {0};
    char *made = NULL, *path = NULL;
    const bool page = !a->json || a->output != NULL;

    int code = cli_place_parse(&place, a->arg[0]);
    if (code == CLI_OK)
        code = check_place(&place, a->arg[0]);
    if (code == CLI_OK && page) {
        made = page_name(place.path);
        path = cli_output_path(a, made);
        code = path == NULL ? CLI_FILES : CLI_OK;
    }
    if (code == CLI_OK && a->json && page && strcmp(path, "-") == 0)
        code = cli_fail(CLI_USAGE, "--json writes to standard output: the page cannot go there too.");
    if (code == CLI_OK && page && strcmp(path, "-") != 0 && !a->force && access(path, F_OK) == 0)
        code = cli_fail(CLI_FILES, "%s: it exists already; -f replaces it.", path);
    if (code == CLI_OK)
        code = report_gather(&r, place.path, true);
    if (code == CLI_OK && page)
        code = page_to(&r, path, a);
    if (code == CLI_OK && a->json)
        report_json(&r);
    if (code == CLI_OK && page && !a->quiet)
        say(&r, path);
    report_free(&r);
    free(made);
    free(path);
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_report = {
    .name = "report",
    .args = "RUN",
    .summary = "Write one HTML page about a run",
    .text = "Shows for every checkpoint that is there: size and bits a parameter by what they are for, the settings in use, the loss that eval_fn\n"
            "measured of live and decoded weights, the metrics that were saved with it, recorded errors, the largest tensors, and parameter by\n"
            "parameter in how many bits ckpress.torch's optimizers keep their moments; what is damaged or missing is named. One file that loads\n"
            "nothing and runs no script, by default RUN-report.html. It is made from manifests and indexes: no tensor is decoded but those widths,\n"
            "and hashes of data are not checked ('ckpress verify' does). Of long runs the page shows every n-th checkpoint and says so. With\n"
            "--json the figures of all checkpoints go to standard output, and a page is written only where --output says.\n"
            "\n"
            "  ckpress report runs/gpt\n"
            "  ckpress report runs/gpt -o report.html --json > report.json",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 1,
    .run = report_run,
};
