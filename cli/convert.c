/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "convert.h"
#include "json.h"
#include "plan.h"

static void
notice(void *user, const char *text)
{
    (void)user;
    cli_note("%s", text);
}

static void
summary(const cli_convert *c, const cli_args *a, const cli_job *job, const ckp_convert_result *r, double s)
{
    cli_text x, y, ratio, speed;
    const char *in = job->in, *out = job->out;
    const uint64_t raw = c->packs ? r->in_bytes : r->out_bytes, packed = c->packs ? r->out_bytes : r->in_bytes;

    cli_safe(stderr, strcmp(in, "-") == 0 ? "standard input" : in);
    if (r->in_bytes != 0)
        (void)fprintf(stderr, ": %s", cli_size(&x, r->in_bytes));
    (void)fputs(" -> ", stderr);
    cli_safe(stderr, strcmp(out, "-") == 0 ? "standard output" : out);
    (void)fprintf(stderr, ": %s", cli_size(&y, r->out_bytes));
    if (r->in_bytes != 0 && packed != 0)
        (void)fprintf(stderr, " (%s, %.1f %%)", cli_ratio(&ratio, raw, packed), raw != 0 ? 100.0 * (double)packed / (double)raw : 0.0);
    (void)fprintf(stderr, " in %.2f s", s);
    if (raw != 0 && s > 0.0)
        (void)fprintf(stderr, ", %s/s", cli_size(&speed, (uint64_t)((double)raw / s)));
    if (a->dry_run)
        (void)fputs("; a dry run: nothing was written", stderr);
    (void)fputc('\n', stderr);
    if (a->verbose)
        (void)fprintf(stderr, "  %s, %llu tensors, %llu -> %llu bytes\n", r->kind, (unsigned long long)r->tensors,
                      (unsigned long long)r->in_bytes, (unsigned long long)r->out_bytes);
}

/* What a lossy profile made of the file, and what it left out. */
static void
json_packed(cli_json *j, const cli_args *a, const ckp_convert_result *r)
{
    cli_json_bool(j, "dry_run", a->dry_run);
    cli_json_str(j, "profile", ckp_profile_name(cli_profile(a)));
    cli_json_str(j, "coded", r->lossy != 0 ? "lossy" : "lossless");
    cli_json_u64(j, "lossy_tensors", r->lossy);
    cli_json_str(j, "reason", r->why_lossless[0] != '\0' ? r->why_lossless : NULL);
    cli_json_u64(j, "dropped_tensors", r->dropped);
    cli_json_u64(j, "dropped_bytes", r->dropped_bytes);
}

static void
print_json(cli_json *j, const cli_convert *c, const cli_args *a, const cli_job *job, const ckp_convert_result *r, double s)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "in", job->in);
    cli_json_str(j, "out", job->out);
    cli_json_str(j, "kind", r->kind);
    cli_json_u64(j, "tensors", r->tensors);
    cli_json_u64(j, "in_bytes", r->in_bytes);
    cli_json_u64(j, "out_bytes", r->out_bytes);
    if (c->packs) {
        json_packed(j, a, r);
    } else {
        cli_json_u64(j, "values_lost", r->values_lost);
        cli_json_str(j, "values_named", r->values_lost != 0 ? r->values_named : NULL);
    }
    cli_json_num(j, "seconds", s);
    cli_json_close(j, '}');
}

/* ---- before the work: what must not be found out after an hour of it ------------------------------------------------- */

static int
check_ends(const cli_convert *c, const cli_args *a, const cli_job *job)
{
    const bool from_pipe = strcmp(job->in, "-") == 0, to_pipe = strcmp(job->out, "-") == 0;

    if (from_pipe && isatty(STDIN_FILENO) == 1)
        return cli_fail(CLI_USAGE, "standard input is a terminal.");
    if (to_pipe && !a->dry_run && isatty(STDOUT_FILENO) == 1 && !a->force)
        return cli_fail(CLI_USAGE, "standard output is a terminal: binary data is written to it with -f only.");
    if (to_pipe && !a->dry_run && a->json)
        return cli_fail(CLI_USAGE, "--json and data cannot both go to standard output.");
    if (cli_same_file(job->in, job->out))
        return cli_fail(CLI_USAGE, "%s: input and output are the same file.", job->in);
    for (size_t i = 0; !a->dry_run && i < a->n_base; i++)
        if (cli_same_file(job->out, a->base[i]))
            return cli_fail(CLI_USAGE, "%s: it is a base, which what is based on it cannot be read without: it is not written over.", job->out);
    if (c->packs && job->place.is_run)
        return cli_fail(CLI_USAGE, "%s is a directory: %s takes files.", job->in, c->verb);
    return CLI_OK;
}

static void
plan(const cli_convert *c, const cli_args *a, cli_job *job)
{
    char *made = NULL;

    if (strcmp(job->in, "-") != 0) {
        job->code = cli_place_parse(&job->place, job->in);
        /* a name given by the user needs no look into the file */
        const bool given = a->output != NULL && !cli_output_is_dir(a);
        made = job->code != CLI_OK ? NULL : given ? cli_copy(a->output) : c->name(job, a);
        job->out = made != NULL ? cli_output_path(a, made) : NULL;
        free(made);
        if (job->out == NULL && job->code == CLI_OK)
            job->code = CLI_FILES;
    } else if (cli_output_is_dir(a)) {
        job->code = cli_fail(CLI_USAGE, "%s is a directory, and standard input has no name to have in it.", a->output);
    } else {
        job->out = cli_copy(a->output != NULL ? a->output : "-");
    }
    if (job->code == CLI_OK)
        job->code = check_ends(c, a, job);
}

/* The later one would replace the earlier one's output, or fail after all that was before it. */
static int
check_clashes(const cli_job *job, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; job[i].out != NULL && k < i; k++)
            if (job[k].out != NULL && cli_same_target(job[k].out, job[i].out))
                return cli_fail(CLI_USAGE, "%s and %s would both become %s: nothing was written.", job[k].in, job[i].in, job[i].out);
    return CLI_OK;
}

/* ---- the work --------------------------------------------------------------------------------------------------------- */

static int
convert_one(const cli_convert *c, const cli_args *a, const cli_job *job, cli_json *j)
{
    ckp_convert_result res = {.size = sizeof res};
    ckp_convert_options opt = CKP_CONVERT_OPTIONS_INIT;
    ckp_error e = {0};
    cli_progress p;

    cli_progress_start(&p, a, job->in);
    opt.only = a->only;
    opt.coding.profile = cli_profile(a);
    opt.coding.quality = a->quality;
    opt.coding.optimizer_states = a->states;
    opt.coding.threads = a->threads;
    opt.coding.effort = a->effort;
    opt.coding.progress = cli_progress_step;
    opt.coding.progress_user = &p;
    opt.bases = a->base;
    opt.n_bases = a->n_base;
    opt.replace = a->force;
    opt.notice = a->quiet ? NULL : notice;
    const ckp_status st = c->run(a, job, &opt, &res, &e);
    const double s = cli_progress_end(&p);
    const int code = cli_told(st, &e);
    if (st == CKP_EEXIST)
        cli_note("-f replaces it");
    if (code == CLI_OK && a->json)
        print_json(j, c, a, job, &res, s);
    if (code == CLI_OK && !a->quiet)
        summary(c, a, job, &res, s);
    return code;
}

static int
run_all(const cli_convert *c, const cli_args *a, const cli_job *job)
{
    cli_json j = {0};
    int first = CLI_OK;
    size_t i = 0;

    if (a->json)
        cli_json_open(&j, NULL, '[');
    for (; i < a->n_arg && cli_signal() == 0; i++) {
        const int code = job[i].code == CLI_OK ? convert_one(c, a, &job[i], &j) : job[i].code;
        if (first == CLI_OK)
            first = code;
    }
    if (a->json)
        cli_json_close(&j, ']');
    /* between two files nobody has told it yet */
    if (i < a->n_arg && first == CLI_OK)
        first = i == 0 ? cli_fail(128 + cli_signal(), "stopped by a signal; nothing was written.")
                       : cli_fail(128 + cli_signal(), "stopped by a signal before %s; that and what comes after it was not written.", job[i].in);
    return first;
}

int
cli_convert_all(const cli_convert *c, const cli_args *a)
{
    if (a->output != NULL && a->n_arg > 1 && !cli_output_is_dir(a))
        return cli_fail(CLI_USAGE, "--output names one file, but there are %zu inputs; a directory takes them all.", a->n_arg);
    cli_job *job = cli_alloc(a->n_arg * sizeof *job);
    for (size_t i = 0; i < a->n_arg; i++) {
        job[i].in = a->arg[i];
        plan(c, a, &job[i]);
    }
    int code = check_clashes(job, a->n_arg);
    if (code == CLI_OK)
        code = run_all(c, a, job);
    for (size_t i = 0; i < a->n_arg; i++) {
        cli_place_free(&job[i].place);
        free(job[i].out);
    }
    free(job);
    return code;
}
