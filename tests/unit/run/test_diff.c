/* SPDX-License-Identifier: Apache-2.0 */
/* What changed between two states: names, layouts, values by path; bad input is an error, never a wrong figure. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "harness/failalloc.h"
#include "model.h"
#include "run/diff_tree.h"

#define SEEN_MAX 64

typedef struct seen {
    ckp_diff_tensor t[SEEN_MAX];
    char name[SEEN_MAX][64];
    size_t n;
    char values[4096];           /* "path: a -> b\n" of each */
    size_t n_values;
    size_t stop_tensor, stop_value, stop_progress;   /* the call that asks to end, from 1; 0: none */
    size_t progress;
    uint64_t done, total;
} seen;

static int
see_tensor(void *user, const ckp_diff_tensor *t)
{
    seen *s = user;
    assert_true(s->n < SEEN_MAX);
    (void)snprintf(s->name[s->n], sizeof s->name[s->n], "%s", t->name);
    s->t[s->n++] = *t;
    return s->n == s->stop_tensor;
}

static int
see_value(void *user, const ckp_diff_value *v)
{
    seen *s = user;
    const size_t at = strlen(s->values);
    (void)snprintf(s->values + at, sizeof s->values - at, "%s: %s -> %s\n", v->path, v->a != NULL ? v->a : "?", v->b != NULL ? v->b : "?");
    s->n_values++;
    return s->n_values == s->stop_value;
}

static int
see_progress(void *user, uint64_t done, uint64_t total)
{
    seen *s = user;
    assert_true(done > s->done && done <= total);
    s->done = done;
    s->total = total;
    return ++s->progress == s->stop_progress;
}

static ckp_status
diff(seen *s, const ckp_diff_side *a, const ckp_diff_side *b, ckp_error *e)
{
    ckp_diff_options o = CKP_DIFF_OPTIONS_INIT;
    o.tensor = see_tensor;
    o.value = see_value;
    o.user = s;
    o.progress = see_progress;
    o.progress_user = s;
    return ckp_diff(a, b, &o, e);
}

static ckp_status
diff_files(seen *s, const char *a, const char *b, ckp_error *e)
{
    *s = (seen){0};
    return diff(s, &(ckp_diff_side){.path = a}, &(ckp_diff_side){.path = b}, e);
}

static const ckp_diff_tensor *
named(const seen *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return &s->t[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void
save(const model *m, const char *path)
{
    const ckp_coding c = CKP_CODING_INIT;
    ckp_state *s = model_state(m);
    assert_ok(ckp_file_save(path, s, &c, NULL, true, NULL));
    ckp_state_free(s);
}

/* ---- names, layouts, figures ---------------------------------------------------------------------------------------- */

static void
each_kind(void **state)
{
    const uint64_t mat[4] = {3, 4}, other[4] = {4, 3}, vec[4] = {8};
    char a[256], b[256];
    ckp_error e = {0};
    model m = {.step = 1}, n = {.step = 2};
    seen s;

    (void)snprintf(a, sizeof a, "%s", model_path(state, "a.ckp"));
    (void)snprintf(b, sizeof b, "%s", model_path(state, "b.ckp"));
    for (int i = 0; i < 2; i++) {
        model *x = i == 0 ? &m : &n;
        model_tensor *t = model_add(x, "values", CKP_ROLE_WEIGHT, "", CKP_F32, vec);
        for (uint64_t k = 0; k < 8; k++)
            model_set(t, k, i != 0 && k == 3 ? 2.0f : 1.0f);
        (void)model_add(x, "same", CKP_ROLE_WEIGHT, "", CKP_BF16, mat);
        (void)model_add(x, "shape", CKP_ROLE_OTHER, "", CKP_I64, i == 0 ? mat : other);
        (void)model_add(x, "dtype", CKP_ROLE_OTHER, "", i == 0 ? CKP_F32 : CKP_I32, mat);
        (void)model_add(x, i == 0 ? "only a" : "only b", CKP_ROLE_OTHER, "", CKP_U8, vec);
        save(x, i == 0 ? a : b);
    }
    assert_ok(diff_files(&s, a, b, &e));
    assert_int_equal(s.n, 6);
    const ckp_diff_tensor *t = named(&s, "values");
    assert_true(t->kind == CKP_DIFF_VALUES && t->role == CKP_ROLE_WEIGHT && t->numel == 8 && t->differ == 1 && t->numbers && t->not_finite == 0);
    assert_true(t->max_abs == 1.0 && t->rms_a == 1.0 && fabs(t->rms - sqrt(1.0 / 8)) < 1e-15);
    assert_true(named(&s, "same")->kind == CKP_DIFF_SAME && named(&s, "same")->differ == 0);
    t = named(&s, "shape");
    assert_true(t->kind == CKP_DIFF_LAYOUT && t->ndim_a == 2 && t->ndim_b == 2 && t->numel == 12);
    t = named(&s, "dtype");
    assert_true(t->kind == CKP_DIFF_LAYOUT && t->dtype_a == CKP_F32 && t->dtype_b == CKP_I32);
    t = named(&s, "only a");
    assert_true(t->kind == CKP_DIFF_ONLY_A && t->dtype_a == CKP_U8 && t->dtype_b == 0 && t->numel == 8);
    t = named(&s, "only b");
    assert_true(t->kind == CKP_DIFF_ONLY_B && t->dtype_a == 0 && t->dtype_b == CKP_U8);
    assert_string_equal(s.values, ": 1 -> 2\n");
    assert_true(s.done == s.total && s.total == 2 * (8 * 4 + 12 * 2));
    assert_ok(diff_files(&s, a, a, &e));
    assert_true(s.n == 5 && s.n_values == 0);
    for (size_t i = 0; i < s.n; i++)
        assert_int_equal(s.t[i].kind, CKP_DIFF_SAME);
    model_free(&m);
    model_free(&n);
}

/* Open checkpoints of a run, with chains behind them, are told as files of the same states are. */
static void
a_run_is_as_its_files(void **state)
{
    const char *dir = model_path(state, "run");
    char path[2][256];
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    ckp_checkpoint *ck[2] = {NULL, NULL};
    ckp_error e = {0};
    seen s, t;
    model m;

    model_small(&m, "diff");
    opt.key_every = 8;
    ckp_run *run = model_run(dir, opt);
    for (int i = 0; i < 4; i++) {
        model_step(&m);
        m.step = (uint64_t)i + 1;
        assert_ok(model_save(run, &m, NULL, &e));
        assert_ok(ckp_run_wait(run, &e));
        if (i >= 2) {
            (void)snprintf(path[i - 2], sizeof path[0], "%s", model_path(state, i == 2 ? "3.ckp" : "4.ckp"));
            save(&m, path[i - 2]);
        }
    }
    assert_ok(ckp_run_close(run, &e));
    for (int i = 0; i < 2; i++)
        assert_ok(ckp_checkpoint_open_run(&ck[i], dir, 3 + i, false, &e));
    assert_ok(diff_files(&s, path[0], path[1], &e));
    t = (seen){0};
    assert_ok(diff(&t, &(ckp_diff_side){.ck = ck[0]}, &(ckp_diff_side){.ck = ck[1]}, &e));
    assert_true(s.n == t.n && s.n > 5);
    assert_string_equal(s.values, t.values);
    size_t differ = 0;
    for (size_t i = 0; i < s.n; i++) {
        const ckp_diff_tensor *x = named(&s, t.name[i]), *y = &t.t[i];
        assert_true(x->kind == y->kind && x->differ == y->differ && x->max_abs == y->max_abs && x->rms == y->rms && x->rms_a == y->rms_a);
        assert_true(x->role == y->role);
        differ += x->kind == CKP_DIFF_VALUES;
    }
    assert_true(differ > 5);
    /* mixed: a checkpoint and the file of its state */
    t = (seen){0};
    assert_ok(diff(&t, &(ckp_diff_side){.ck = ck[1]}, &(ckp_diff_side){.path = path[1]}, &e));
    for (size_t i = 0; i < t.n; i++)
        assert_int_equal(t.t[i].kind, CKP_DIFF_SAME);
    /* a child must not use a handle of its parent */
    const pid_t pid = fork();
    if (pid == 0)
        _exit(diff(&t, &(ckp_diff_side){.ck = ck[0]}, &(ckp_diff_side){.ck = ck[1]}, NULL) == CKP_EFORK ? 0 : 1);
    int status = 1;
    assert_true(waitpid(pid, &status, 0) == pid && status == 0);
    ckp_checkpoint_close(ck[0]);
    ckp_checkpoint_close(ck[1]);
    model_free(&m);
}

static void
aliases(void **state)
{
    const uint64_t vec[4] = {8};
    char a[256];
    ckp_error e = {0};
    model m = {0};
    seen s;

    (void)snprintf(a, sizeof a, "%s", model_path(state, "a.ckp"));
    (void)model_add(&m, "first", CKP_ROLE_WEIGHT, "", CKP_F32, vec);
    model_tensor *t = model_add(&m, "second", CKP_ROLE_WEIGHT, "", CKP_F32, vec);
    free(t->data);
    t->data = m.t[0].data;
    t->alias = true;
    save(&m, a);
    assert_ok(diff_files(&s, a, a, &e));
    assert_true(s.n == 2 && !named(&s, "first")->alias && named(&s, "second")->alias);
    assert_true(named(&s, "second")->kind == CKP_DIFF_SAME && named(&s, "second")->numel == 8);
    model_free(&m);
}

static void
callers_may_stop(void **state)
{
    const char *a = model_path(state, "a.ckp"), *b = model_path(state, "b.ckp");
    ckp_error e = {0};
    ckp_diff_options o = CKP_DIFF_OPTIONS_INIT;
    model m;

    model_small(&m, "stop");
    m.step = 1;
    save(&m, a);
    model_step(&m);
    m.step = 2;
    save(&m, b);
    for (int i = 0; i < 3; i++) {
        seen s = {.stop_tensor = i == 0 ? 2 : 0, .stop_value = i == 1 ? 1 : 0, .stop_progress = i == 2 ? 3 : 0};
        assert_status(diff(&s, &(ckp_diff_side){.path = a}, &(ckp_diff_side){.path = b}, &e), CKP_ECANCELLED);
        assert_true(i == 0 ? s.n == 2 : i == 1 ? s.n_values == 1 : s.progress == 3);
    }
    const ckp_diff_side side = {.path = a}, none = {0}, no_bases = {.path = a, .n_bases = 1};
    assert_ok(ckp_diff(&side, &side, &o, &e));           /* nobody listens */
    assert_status(ckp_diff(&side, &side, NULL, &e), CKP_EINVAL);
    assert_status(ckp_diff(NULL, &side, &o, &e), CKP_EINVAL);
    assert_status(ckp_diff(&side, &none, &o, &e), CKP_EINVAL);
    assert_status(ckp_diff(&no_bases, &side, &o, &e), CKP_EINVAL);
    o.size = 1;
    assert_status(ckp_diff(&side, &side, &o, &e), CKP_EINVAL);
    model_free(&m);
}

/* ---- trees ------------------------------------------------------------------------------------------------------------ */

static void
put(ckp_state *s, ckp_tree_type type, uint64_t count, const char *text)
{
    const ckp_tree_node n = {.type = type, .count = count, .data = text, .len = text != NULL ? strlen(text) : 0, .i = (int64_t)count};
    assert_ok(ckp_state_tree_put(s, &n, NULL));
}

/* {"a": OrderedDict([("x", NAMED over (count, text))]) with attributes, (1, (2,)): [], 5: text, "": None} */
static void
put_tree(ckp_state *s, uint64_t count, const char *text, bool more)
{
    put(s, CKP_TREE_DICT, 4, NULL);
    put(s, CKP_TREE_STR, 0, "a");
    put(s, CKP_TREE_NAMED, 0, "collections.OrderedDict");
    put(s, CKP_TREE_TUPLE, 2, NULL);
    put(s, CKP_TREE_ORDERED_DICT, 1, NULL);
    put(s, CKP_TREE_STR, 0, "x");
    put(s, CKP_TREE_NAMED, 0, "odd");
    put(s, CKP_TREE_TUPLE, 2, NULL);
    put(s, CKP_TREE_INT, count, NULL);
    put(s, CKP_TREE_STR, 0, text);
    put(s, CKP_TREE_DICT, 1, NULL);
    put(s, CKP_TREE_STR, 0, "m");
    put(s, CKP_TREE_STR, 0, text);
    put(s, CKP_TREE_TUPLE, 2, NULL);     /* a key */
    put(s, CKP_TREE_INT, 1, NULL);
    put(s, CKP_TREE_TUPLE, 1, NULL);
    put(s, CKP_TREE_INT, 2, NULL);
    put(s, CKP_TREE_LIST, more ? 1 : 0, NULL);
    if (more)
        put(s, CKP_TREE_TRUE, 0, NULL);
    put(s, CKP_TREE_INT, 5, NULL);
    put(s, CKP_TREE_BYTES, 0, text);
    put(s, CKP_TREE_STR, 0, "");
    put(s, CKP_TREE_NONE, 0, NULL);
}

static ckp_status
save_tree(const char *path, uint64_t count, const char *text, bool more)
{
    const ckp_coding c = CKP_CODING_INIT;
    ckp_state *s = NULL;

    assert_ok(ckp_state_new(&s, NULL));
    put_tree(s, count, text, more);
    const ckp_status st = ckp_file_save(path, s, &c, NULL, true, NULL);
    ckp_state_free(s);
    return st;
}

static void
values_by_path(void **state)
{
    const char *a = model_path(state, "a.ckp"), *b = model_path(state, "b.ckp");
    ckp_error e = {0};
    seen s;

    assert_ok(save_tree(a, 1, "one", false));
    assert_ok(save_tree(b, 7, "a/~b", true));
    assert_ok(diff_files(&s, a, b, &e));
    assert_string_equal(s.values, "5: 0x6f6e65 -> 0x612f7e62\n?1: [] -> ?\n?1/0: ? -> True\na/(attributes)/m: \"one\" -> \"a/~b\"\n"
                                  "a/x/0: 1 -> 7\na/x/1: \"one\" -> \"a/~b\"\n");
    assert_ok(diff_files(&s, a, a, &e));
    assert_int_equal(s.n_values, 0);
}

/* Any bytes for a tree: a status, no crash. */
static void
broken_trees(void **state)
{
    uint8_t bytes[64];
    test_rng rng = test_rng_new("broken trees");
    seen s;
    size_t failed = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        const size_t n = 1 + (size_t)test_below(&rng, sizeof bytes);
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)test_below(&rng, k == 0 || test_below(&rng, 2) != 0 ? 22 : 256);
        s = (seen){0};
        failed += ckpi_diff_trees(bytes, n, bytes, n, see_value, &s, NULL) != CKP_OK;
        assert_int_equal(s.n_values, 0);
        failed += ckpi_diff_trees(bytes, n, NULL, 0, see_value, &s, NULL) != CKP_OK;
    }
    assert_true(failed > 1000 && failed < 40000);
}

/* ---- what fails --------------------------------------------------------------------------------------------------------- */

/* A bit of each byte: damage is told by file, or is where it changes nothing. */
static void
every_damaged_byte(void **state)
{
    char a[256], b[256];
    size_t n = 0, told = 0;
    model m;
    seen s;

    (void)snprintf(a, sizeof a, "%s", model_path(state, "a.ckp"));
    (void)snprintf(b, sizeof b, "%s", model_path(state, "b.ckp"));
    model_small(&m, "damage");
    save(&m, a);
    uint8_t *file = model_load_file(a, &n);
    for (size_t at = 0; at < n; at += 1 + n / 1500) {
        ckp_error e = {0};
        file[at] ^= 16;
        model_store_file(b, file, n);
        file[at] ^= 16;
        const ckp_status st = diff_files(&s, a, b, &e);
        if (st == CKP_OK) {
            for (size_t i = 0; i < s.n; i++)
                assert_int_equal(s.t[i].kind, CKP_DIFF_SAME);
        } else {
            assert_non_null(strstr(e.text, "b.ckp"));
            assert_true(st <= CKP_ECORRUPT || st == CKP_EUNSUPPORTED || st == CKP_ELIMIT);
            told++;
        }
    }
    assert_true(told > 1000);
    for (size_t len = 0; len < n; len += 1 + n / 200) {
        ckp_error e = {0};
        model_store_file(b, file, len);
        assert_true(diff_files(&s, a, b, &e) != CKP_OK && strstr(e.text, "b.ckp") != NULL);
    }
    ckp_error e = {0};
    assert_status(diff_files(&s, a, model_path(state, "none.ckp"), &e), CKP_ENOTFOUND);
    assert_non_null(strstr(e.text, "none.ckp"));
    assert_true(diff_files(&s, model_path(state, "."), a, &e) != CKP_OK);       /* a directory */
    free(file);
    model_free(&m);
}

/* A file that is cut short, or written over, after it was opened: told when it is read. */
static void
a_file_that_changes(void **state)
{
    char a[256];
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    size_t n = 0;
    model m;
    seen s = {0};

    (void)snprintf(a, sizeof a, "%s", model_path(state, "a.ckp"));
    model_small(&m, "changes");
    save(&m, a);
    uint8_t *file = model_load_file(a, &n);
    for (int i = 0; i < 2; i++) {
        model_store_file(a, file, n);
        assert_ok(ckp_checkpoint_open_file(&ck, a, NULL, 0, NULL));
        if (i == 0)
            assert_int_equal(truncate(a, 100), 0);
        else
            for (size_t k = 0; k < n; k++)
                file[k] ^= 1;
        if (i == 1) {
            FILE *f = fopen(a, "r+b");
            assert_true(f != NULL && fwrite(file, 1, n, f) == n && fclose(f) == 0);
        }
        const ckp_status st = diff(&s, &(ckp_diff_side){.ck = ck}, &(ckp_diff_side){.ck = ck}, &e);
        assert_true(st == CKP_ETRUNCATED || st == CKP_ECORRUPT || st == CKP_EIO);
        assert_non_null(strstr(e.text, "a.ckp"));
        ckp_checkpoint_close(ck);
    }
    free(file);
    model_free(&m);
}

/* A delta without its base, with it, and a base that is no such file. */
static void
deltas_need_their_base(void **state)
{
    const ckp_coding c = CKP_CODING_INIT;
    char a[256], b[256], junk[256];
    const char *base[1];
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    model m;

    (void)snprintf(a, sizeof a, "%s", model_path(state, "a.ckp"));
    (void)snprintf(b, sizeof b, "%s", model_path(state, "b.ckp"));
    (void)snprintf(junk, sizeof junk, "%s", model_path(state, "junk"));
    model_store_file(junk, "no checkpoint, whatever it is called", 36);
    model_small(&m, "delta");
    save(&m, a);
    model_step(&m);
    assert_ok(ckp_checkpoint_open_file(&ck, a, NULL, 0, NULL));
    ckp_state *state_b = model_state(&m);
    assert_ok(ckp_file_save(b, state_b, &c, ck, true, &e));
    ckp_state_free(state_b);
    ckp_checkpoint_close(ck);
    seen s = {0};
    const ckp_diff_side x = {.path = a, .bases = base, .n_bases = 1}, y = {.path = b, .bases = base, .n_bases = 1}, alone = {.path = b};
    base[0] = a;
    assert_status(diff(&s, &x, &alone, &e), CKP_EBASE);
    s = (seen){0};
    assert_ok(diff(&s, &x, &y, &e));
    assert_true(s.n > 5 && named(&s, s.name[0])->kind == CKP_DIFF_VALUES);
    base[0] = junk;
    s = (seen){0};
    const ckp_diff_side plain = {.path = a};
    assert_status(diff(&s, &plain, &y, &e), CKP_EFORMAT);
    assert_non_null(strstr(e.text, "junk"));
    model_free(&m);
}

typedef struct pair { char a[256], b[256]; } pair;

static int
ignore_tensor(void *user, const ckp_diff_tensor *t)
{
    (void)user;
    (void)t;
    return 0;
}

static int
ignore_value(void *user, const ckp_diff_value *v)
{
    (void)user;
    (void)v;
    return 0;
}

static ckp_status
diff_once(void *user)
{
    const pair *p = user;
    ckp_diff_options o = CKP_DIFF_OPTIONS_INIT;
    o.tensor = ignore_tensor;
    o.value = ignore_value;
    return ckp_diff(&(ckp_diff_side){.path = p->a}, &(ckp_diff_side){.path = p->b}, &o, NULL);
}

/* Each allocation fails once: told, nothing leaks, nothing crashes. */
static void
no_memory(void **state)
{
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    pair p;
    model m;

    (void)snprintf(p.a, sizeof p.a, "%s", model_path(state, "a.ckp"));
    (void)snprintf(p.b, sizeof p.b, "%s", model_path(state, "b.ckp"));
    model_small(&m, "memory");
    save(&m, p.a);
    model_step(&m);
    m.step++;
    save(&m, p.b);
    assert_true(failalloc_run(diff_once, &p, 50, 1) > 50);
    (void)snprintf(p.b, sizeof p.b, "%s", model_path(state, "b.safetensors"));
    assert_ok(ckp_decompress(p.a, p.b, &o, NULL, NULL));
    assert_true(failalloc_run(diff_once, &p, 50, 1) > 50);
    assert_ok(save_tree(model_path(state, "t.ckp"), 1, "one", false));
    assert_ok(save_tree(model_path(state, "u.ckp"), 2, "two", true));
    (void)snprintf(p.a, sizeof p.a, "%s", model_path(state, "t.ckp"));
    (void)snprintf(p.b, sizeof p.b, "%s", model_path(state, "u.ckp"));
    assert_true(failalloc_run(diff_once, &p, 50, 1) > 50);
    model_free(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {T(each_kind), T(a_run_is_as_its_files), T(aliases), T(callers_may_stop), T(values_by_path),
                                       cmocka_unit_test(broken_trees), T(every_damaged_byte), T(a_file_that_changes),
                                       T(deltas_need_their_base), T(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
