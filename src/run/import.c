/* SPDX-License-Identifier: Apache-2.0 */
/* A series of other people's files as a run: which steps they are, then a save of each. */
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_export.h>
#include "base/fail.h"
#include "io/io.h"
#include "os/os.h"
#include "run/convert.h"
#include "run/list.h"

/* ---- steps --------------------------------------------------------------------------------------------------------- */

#define NUMBERS 32               /* of one path */

typedef struct numbers {
    uint64_t v[NUMBERS];
    const char *at[NUMBERS];
    size_t len[NUMBERS];
    size_t n;
} numbers;

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Runs of digits; those that no step could be (beyond 63 bits) count as text. */
static bool
find_numbers(const char *path, numbers *out)
{
    out->n = 0;
    for (const char *p = path; *p != '\0';) {
        size_t len = 0;
        uint64_t v = 0;
        while (is_digit(p[len])) {
            v = len < 18 ? v * 10 + (uint64_t)(p[len] - '0') : 0;
            len++;
        }
        if (len != 0 && len <= 18) {
            if (out->n == NUMBERS)
                return false;
            out->v[out->n] = v;
            out->at[out->n] = p;
            out->len[out->n++] = len;
        }
        p += len != 0 ? len : 1;
    }
    return true;
}

/* Whether two paths are the same but for their numbers. */
static bool
same_text(const char *a, const numbers *x, const char *b, const numbers *y)
{
    if (x->n != y->n)
        return false;
    for (size_t i = 0; i <= x->n; i++) {
        const char *ae = i < x->n ? x->at[i] : a + strlen(a), *be = i < y->n ? y->at[i] : b + strlen(b);
        if (ae - a != be - b || memcmp(a, b, (size_t)(ae - a)) != 0)
            return false;
        a = i < x->n ? ae + x->len[i] : ae;
        b = i < y->n ? be + y->len[i] : be;
    }
    return true;
}

static const char *
last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static ckp_status
step_of_one(const char *path, uint64_t *step, ckp_error *err)
{
    numbers x;

    if (!find_numbers(last_part(path), &x) || x.n != 1)
        return ckpi_fail(err, CKP_EINVAL, "%.200s: its name holds %s: give its step", path, x.n == 0 ? "no number that could be its step" : "several numbers");
    *step = x.v[0];
    return CKP_OK;
}

static ckp_status
no_steps(const char *a, const char *b, const char *why, ckp_error *err)
{
    return ckpi_fail(err, CKP_EINVAL, "steps cannot be told from the names: %.150s and %.150s %s; give the steps, or say that they come in order", a, b, why);
}

/* *at: the number in which a file differs from the first; NUMBERS: in none so far. */
static ckp_status
differing(const char *const *file, size_t i, const numbers *x, const numbers *y, size_t *at, ckp_error *err)
{
    if (!same_text(file[0], x, file[i], y))
        return no_steps(file[0], file[i], "differ in more than numbers", err);
    for (size_t k = 0; k < x->n; k++) {
        if (x->v[k] == y->v[k] || k == *at)
            continue;
        if (*at != NUMBERS)
            return no_steps(file[0], file[i], "differ in more than one number", err);
        *at = k;
    }
    return CKP_OK;
}

ckp_status
ckp_import_steps(const char *const *file, size_t n, uint64_t *step, ckp_error *err)
{
    numbers x, y;
    size_t at = NUMBERS;
    ckp_status st = CKP_OK;

    if (file == NULL || step == NULL || n == 0)
        return ckpi_fail(err, CKP_EINVAL, "import_steps: NULL argument");
    if (n == 1)
        return step_of_one(file[0], step, err);
    if (!find_numbers(file[0], &x))
        return ckpi_fail(err, CKP_EINVAL, "%.200s: too many numbers in its name: give the steps", file[0]);
    for (size_t i = 1; st == CKP_OK && i < n; i++)
        st = find_numbers(file[i], &y) ? differing(file, i, &x, &y, &at, err) : no_steps(file[0], file[i], "have too many numbers", err);
    if (st == CKP_OK && at == NUMBERS)
        st = no_steps(file[0], file[1], "have the same numbers", err);
    for (size_t i = 0; st == CKP_OK && i < n; i++) {
        if (!find_numbers(file[i], &y))
            st = CKP_EINVAL;       /* was seen above */
        step[i] = y.v[at];
        for (size_t k = 0; st == CKP_OK && k < i; k++)
            if (step[k] == step[i])
                st = no_steps(file[k], file[i], "have the same step", err);
    }
    return st;
}

/* ---- importing ----------------------------------------------------------------------------------------------------- */

typedef struct item { const char *file; uint64_t step; } item;

static int
by_step(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->step < y->step ? -1 : x->step > y->step;
}

static ckp_status
order(const char *const *file, size_t n, const ckp_import_options *o, item *v, ckp_error *err)
{
    uint64_t *step = ckpi_calloc(n, sizeof *step);
    ckp_status st = step != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu files", n);

    if (st == CKP_OK && o->step == NULL && !o->in_order)
        st = ckp_import_steps(file, n, step, err);
    for (size_t i = 0; st == CKP_OK && i < n; i++) {
        v[i] = (item){file[i], o->step != NULL ? o->step[i] : o->in_order ? i + 1 : step[i]};
        if (o->step != NULL && i != 0 && v[i].step <= v[i - 1].step)
            st = ckpi_fail(err, CKP_EINVAL, "step %llu comes after step %llu: steps rise", (unsigned long long)v[i].step, (unsigned long long)v[i - 1].step);
    }
    if (st == CKP_OK && o->step == NULL && !o->in_order)
        qsort(v, n, sizeof *v, by_step);
    free(step);
    return st;
}

static int
stop_at_first(void *user, const ckp_list_entry *e)
{
    bool *any = user;
    (void)e;
    *any = true;
    return 1;
}

/* What is not there must not be found out after the run was made. */
static ckp_status
look_at(const char *file, const ckp_coding *coding, ckp_error *err)
{
    ckpi_reader *r = NULL;
    const ckp_status st = ckpi_in_open(&r, file, coding, err);
    ckpi_reader_free(r);
    return st;
}

/* A run that has something would be mixed with what is imported. */
static ckp_status
refuse_used(const char *run, ckp_error *err)
{
    bool any = false;

    const ckp_status st = ckp_run_list(run, stop_at_first, &any, err);
    if (any) {
        (void)ckpi_fail(err, CKP_EEXIST, "the run has checkpoints already: import into a new one");
        ckpi_fail_file(err, run);
        return CKP_EEXIST;
    }
    return st == CKP_OK || st == CKP_ENOTFOUND ? CKP_OK : st;
}

static ckp_status
save_state(ckp_run *run, ckpi_foreign *f, const item *it, const ckp_import_options *o, ckp_imported *done, uint64_t in_bytes, ckp_error *err)
{
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    ckp_save_stats s = {.size = sizeof s};

    so.wait = true;
    ckp_status st = ckp_run_save(run, it->step, ckpi_foreign_state(f), &so, NULL, err);
    if (st == CKP_OK)
        st = ckpi_foreign_finish(f, err);
    if (st != CKP_OK)
        return st;
    ckp_run_stats(run, &s);
    done->checkpoints++;
    done->in_bytes += in_bytes;
    done->stored_bytes += s.stored_bytes;
    if (o->told != NULL)
        o->told(o->told_user, it->file, it->step, in_bytes, s.stored_bytes);
    return CKP_OK;
}

static ckp_status
import_one(ckp_run *run, const item *it, const ckp_import_options *o, ckp_imported *done, ckp_error *err)
{
    const ckpi_foreign_options fo = {.notice = o->notice, .notice_user = o->notice_user, .check_crc = true,
                                     .drop_optimizers = o->coding.profile == CKP_PROFILE_WEIGHTS,
                                     .no_match = o->coding.profile == CKP_PROFILE_LOSSLESS && o->coding.optimizer_states == CKP_STATES_PROFILE};
    ckpi_reader *r = NULL;
    ckpi_foreign *f = NULL;
    uint64_t bytes = 0;

    ckp_status st = ckpi_in_open(&r, it->file, &o->coding, err);
    if (st == CKP_OK)
        st = ckpi_reader_size(r, &bytes, err);
    if (st == CKP_OK)
        st = ckpi_foreign_open(&f, r, &fo, err);
    if (st == CKP_OK)
        st = save_state(run, f, it, o, done, bytes, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, it->file);
    ckpi_foreign_close(f);
    ckpi_reader_free(r);
    return st;
}

static ckp_status
import_all(const char *dir, const item *v, size_t n, const ckp_import_options *o, ckp_imported *done, ckp_error *err)
{
    ckp_run_options ro = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;

    ro.coding = o->coding;
    ro.key_every = o->key_every;
    ckp_status st = ckp_run_open(&run, dir, &ro, err);
    for (size_t i = 0; st == CKP_OK && i < n; i++)
        st = import_one(run, &v[i], o, done, err);
    ckp_error e;
    ckpi_error_clear(&e);
    const ckp_status closed = ckp_run_close(run, &e);
    if (st == CKP_OK && closed != CKP_OK && err != NULL)
        *err = e;
    return st == CKP_OK ? closed : st;
}

ckp_status
ckp_run_import(const char *run, const char *const *file, size_t n, const ckp_import_options *opt, ckp_imported *done, ckp_error *err)
{
    if (run == NULL || file == NULL || n == 0 || opt == NULL || opt->size != sizeof *opt || done == NULL || done->size != sizeof *done ||
        (opt->step != NULL && opt->in_order))
        return ckpi_fail(err, CKP_EINVAL, "run_import: NULL argument, bad size, or steps given that are to be counted");
    *done = (ckp_imported){.size = sizeof *done};
    for (size_t i = 0; i < n; i++)
        if (strcmp(file[i], "-") == 0)
            return ckpi_fail(err, CKP_EINVAL, "import reads files, not standard input");
    item *v = ckpi_calloc(n, sizeof *v);
    ckp_status st = v != NULL ? order(file, n, opt, v, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu files", n);
    for (size_t i = 0; st == CKP_OK && i < n; i++)
        st = look_at(v[i].file, &opt->coding, err);
    if (st == CKP_OK)
        st = refuse_used(run, err);
    if (st == CKP_OK)
        st = import_all(run, v, n, opt, done, err);
    free(v);
    return st;
}
