/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress verify: is it whole? */
#define _POSIX_C_SOURCE 200809L
#include <time.h>
#include "json.h"
#include "place.h"

typedef struct findings { const cli_args *a; cli_json *j; uint64_t n; } findings;

static void
finding(void *user, const char *what, const ckp_error *e)
{
    findings *f = user;

    f->n++;
    if (f->a->json) {
        cli_json_open(f->j, NULL, '{');
        cli_json_str(f->j, "where", what);
        cli_json_str(f->j, "status", ckp_status_name(e->code));
        cli_json_str(f->j, "file", e->file[0] != '\0' ? e->file : NULL);
        cli_json_str(f->j, "tensor", e->tensor[0] != '\0' ? e->tensor : NULL);
        if (e->offset != CKP_NO_OFFSET)
            cli_json_u64(f->j, "offset", e->offset);
        cli_json_str(f->j, "text", e->text);
        cli_json_close(f->j, '}');
        return;
    }
    (void)cli_fail(CLI_OK, "%s", e->text);
}

/* A file or a whole run by its path, one checkpoint of a run through what opening it finds. */
static ckp_status
verify_place(const cli_args *a, const cli_place *p, const ckp_verify_options *o, ckp_verified *done, ckp_error *e)
{
    ckp_checkpoint *ck = NULL;

    if (!p->has_step)
        return ckp_verify_with(p->path, o, done, e);
    ckp_status st = ckp_checkpoint_open_run_on(&ck, p->path, cli_base_model(a), p->step, false, e);
    if (st != CKP_OK) {
        *done = (ckp_verified){.size = sizeof *done, .checkpoints = 1, .looked_at = 1, .findings = 1};
        finding(o->user, p->path, e);
    } else {
        st = ckp_checkpoint_verify_with(ck, o, done, e);
    }
    ckp_checkpoint_close(ck);
    return st;
}

static void
tell_json(cli_json *j, const cli_args *a, const ckp_verify_options *o, const ckp_verified *d, ckp_status st)
{
    static const char *const level[] = {"structure", "data", "decode"};

    cli_json_close(j, ']');
    cli_json_bool(j, "whole", st == CKP_OK);
    cli_json_str(j, "level", level[a->level]);
    cli_json_u64(j, "checkpoints", d->checkpoints);
    cli_json_u64(j, "checkpoints_looked_at", d->looked_at);
    cli_json_u64(j, "checkpoints_whole", d->whole);
    cli_json_u64(j, "chunks", d->chunks);
    cli_json_u64(j, "bytes", d->bytes);
    cli_json_u64(j, "stored_bytes", d->stored_bytes);
    cli_json_num(j, "share", a->share);
    if (a->share < 1.0)
        cli_json_u64(j, "seed", o->seed);
    cli_json_bool(j, "out_of_time", d->out_of_time);
    cli_json_close(j, '}');
}

/* How much a sample, or the time, covered. */
static void
tell_part(const cli_args *a, const ckp_verify_options *o, const ckp_verified *d)
{
    cli_text bytes, of;

    if (d->out_of_time)
        cli_note("the time was up: %llu of %llu checkpoints, newest first", (unsigned long long)d->looked_at, (unsigned long long)d->checkpoints);
    if (a->level != CKP_VERIFY_STRUCTURE && (a->share < 1.0 || d->out_of_time))
        cli_note("%llu chunks, %s of %s (%.3g %%)", (unsigned long long)d->chunks, cli_size(&bytes, d->bytes), cli_size(&of, d->stored_bytes),
                 d->stored_bytes != 0 ? 100.0 * (double)d->bytes / (double)d->stored_bytes : 100.0);
    if (a->level != CKP_VERIFY_STRUCTURE && a->share < 1.0)
        cli_note("--seed %llu takes the same ones again", (unsigned long long)o->seed);
    if (d->findings != 0 && d->checkpoints > 1)
        cli_note("%llu of %llu checkpoints can be restored as far as was looked", (unsigned long long)d->whole, (unsigned long long)d->looked_at);
}

static void
tell(const cli_args *a, const char *path, const ckp_verify_options *o, const ckp_verified *d, ckp_status st)
{
    static const char *const level[] = {"structure", "structure and stored data", "structure, stored and decoded data"};
    const bool part = a->share < 1.0 || d->out_of_time;

    cli_safe(stdout, path);
    if (st == CKP_OK)
        (void)printf(": ok (%s%s)\n", part && a->level != CKP_VERIFY_STRUCTURE ? "a part of its " : "", level[a->level]);
    else
        (void)printf(": %s\n", ckp_status_name(st));
    tell_part(a, o, d);
}

/* o: its time is what is left of the command's. */
static int
verify_one(const cli_args *a, const char *path, ckp_verify_options o, cli_json *j)
{
    findings f = {a, j, 0};
    ckp_verified done = {.size = sizeof done};
    cli_progress bar;
    cli_place place;
    ckp_error e = {0};

    const int parsed = cli_place_parse(&place, path);
    if (parsed != CLI_OK)
        return parsed;
    if (a->json) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "path", path);
        cli_json_open(j, "findings", '[');
    }
    cli_progress_start(&bar, a, path);
    o.fn = finding;
    o.user = &f;
    o.progress = cli_progress_step;
    o.progress_user = &bar;
    const ckp_status st = verify_place(a, &place, &o, &done, &e);
    (void)cli_progress_end(&bar);
    cli_place_free(&place);
    if (a->json)
        tell_json(j, a, &o, &done, st);
    else if (!a->quiet)
        tell(a, path, &o, &done, st);
    return f.n != 0 ? cli_code(st) : cli_told(st, &e);
}

/* A seed that nobody asked for need not be secret, only another one each time. */
static uint64_t
draw_seed(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int
verify(const cli_args *a)
{
    const double started = cli_seconds();
    ckp_verify_options o = CKP_VERIFY_OPTIONS_INIT;
    cli_json j = {0};
    int first = CLI_OK;

    o.level = a->level;
    o.threads = a->threads;
    o.share = a->share;
    o.seed = a->has_seed ? a->seed : draw_seed();
    o.bases = a->base;
    o.n_bases = a->n_base;
    if (a->json)
        cli_json_open(&j, NULL, '[');
    for (size_t i = 0; i < a->n_arg && cli_signal() == 0; i++) {
        const double left = a->max_seconds - (cli_seconds() - started);
        o.max_seconds = a->max_seconds == 0.0 ? 0.0 : left > 1e-9 ? left : 1e-9;
        const int code = verify_one(a, a->arg[i], o, &j);
        if (first == CLI_OK)
            first = code;
    }
    if (a->json)
        cli_json_close(&j, ']');
    return cli_signal() != 0 && first == CLI_OK ? 128 + cli_signal() : first;
}

const cli_command cli_cmd_verify = {
    .name = "verify",
    .args = "FILE|RUN[@STEP]...",
    .summary = "Check that files and runs are whole",
    .text = "Checks structure (manifests, lengths, tables, indexes, that every base is there). --data also reads what is stored and checks the hash of\n"
            "each chunk; --decode decodes it and checks the hash of the result. --data=5% takes a sample, evenly spread over each file and\n"
            "another one each time, unless --seed asks for the same again. With --max-time, the newest checkpoints come first and what was covered\n"
            "is told. Every finding is told on standard error, with file, tensor and place; damage does not end the check, and the exit code is that of the\n"
            "first. A save that was cut short is no damage: it never was a checkpoint.\n"
            "\n"
            "  ckpress verify runs/gpt --data\n"
            "  ckpress verify runs/gpt --data=5% --max-time 60s\n"
            "  ckpress verify runs/gpt@12000 --decode",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_STRUCTURE) | CLI_HAS(CLI_OPT_DATA) | CLI_HAS(CLI_OPT_DECODE) | CLI_HAS(CLI_OPT_MAX_TIME) | CLI_HAS(CLI_OPT_SEED) |
               CLI_HAS(CLI_OPT_BASE) | CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_PROGRESS) | CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = SIZE_MAX,
    .run = verify,
};
