/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "convert.h"
#include "json.h"
#include "place.h"

static void
notice(void *user, const char *text)
{
    (void)user;
    cli_note("%s", text);
}

static void
summary(const cli_convert *c, const cli_args *a, const char *in, const char *out, const ckp_convert_result *r, double s)
{
    cli_text x, y, ratio, speed;
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
    (void)fputc('\n', stderr);
    if (a->verbose)
        (void)fprintf(stderr, "  %s, %llu tensors, %llu -> %llu bytes\n", r->kind, (unsigned long long)r->tensors,
                      (unsigned long long)r->in_bytes, (unsigned long long)r->out_bytes);
}

static void
print_json(cli_json *j, const char *in, const char *out, const ckp_convert_result *r, double s)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "in", in);
    cli_json_str(j, "out", out);
    cli_json_str(j, "kind", r->kind);
    cli_json_u64(j, "tensors", r->tensors);
    cli_json_u64(j, "in_bytes", r->in_bytes);
    cli_json_u64(j, "out_bytes", r->out_bytes);
    cli_json_num(j, "seconds", s);
    cli_json_close(j, '}');
}

/* What must not be found out after an hour of work. */
static int
check_ends(const cli_convert *c, const cli_args *a, const char *in, const char *out)
{
    if (c->binary_in && strcmp(in, "-") == 0 && isatty(STDIN_FILENO) == 1)
        return cli_fail(CLI_USAGE, "standard input is a terminal.");
    if (strcmp(out, "-") == 0 && isatty(STDOUT_FILENO) == 1 && !a->force)
        return cli_fail(CLI_USAGE, "standard output is a terminal: binary data is written to it with -f only.");
    if (strcmp(out, "-") == 0 && a->json)
        return cli_fail(CLI_USAGE, "--json and data cannot both go to standard output.");
    if (cli_same_file(in, out))
        return cli_fail(CLI_USAGE, "%s: input and output are the same file.", in);
    return CLI_OK;
}

static int
convert_one(const cli_convert *c, const cli_args *a, const char *in, cli_json *j)
{
    ckp_convert_result res = {.size = sizeof res};
    ckp_convert_options opt = CKP_CONVERT_OPTIONS_INIT;
    ckp_error e = {0};
    cli_progress p;
    char *made = NULL;
    int code = CLI_OK;

    const char *out = a->output != NULL ? a->output : strcmp(in, "-") == 0 ? "-" : (made = c->name(in, a, &code));
    if (code == CLI_OK)
        code = check_ends(c, a, in, out);
    if (code != CLI_OK)
        goto done;
    cli_progress_start(&p, a, in);
    opt.coding.profile = a->profile;
    opt.coding.quality = a->quality;
    opt.coding.threads = a->threads;
    opt.coding.effort = a->effort;
    opt.coding.progress = cli_progress_step;
    opt.coding.progress_user = &p;
    opt.bases = a->base;
    opt.n_bases = a->n_base;
    opt.replace = a->force;
    opt.notice = a->quiet ? NULL : notice;
    const ckp_status st = c->run(in, out, &opt, &res, &e);
    const double s = cli_progress_end(&p);
    code = cli_told(st, &e);
    if (st == CKP_EEXIST)
        cli_note("-f replaces it");
    if (code == CLI_OK && a->json)
        print_json(j, in, out, &res, s);
    if (code == CLI_OK && !a->quiet)
        summary(c, a, in, out, &res, s);
done:
    free(made);
    return code;
}

int
cli_convert_all(const cli_convert *c, const cli_args *a)
{
    cli_json j = {0};
    int first = CLI_OK;

    if (a->output != NULL && a->n_arg > 1)
        return cli_fail(CLI_USAGE, "--output names one file, but there are %zu inputs.", a->n_arg);
    if (a->json)
        cli_json_open(&j, NULL, '[');
    for (size_t i = 0; i < a->n_arg && cli_signal() == 0; i++) {
        const int code = convert_one(c, a, a->arg[i], &j);
        if (first == CLI_OK)
            first = code;
    }
    if (a->json)
        cli_json_close(&j, ']');
    return first;
}
