/* SPDX-License-Identifier: Apache-2.0 */
/* Matching by names, by order and shapes; what is not certain is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "io/io.h"
#include "io/match.h"
#include "state/state.h"

#define NONE UINT32_MAX

static const uint64_t s4[] = {4}, s8[] = {8}, s44[] = {4, 4}, s48[] = {4, 8};

/* Entries and parameters as letters: a 4, b 8, c 4x4, d 4x8, ? unknown; a digit starts that group. */
static const uint64_t *
shape_of(char c, unsigned *ndim)
{
    *ndim = c == 'c' || c == 'd' ? 2 : 1;
    return c == 'a' ? s4 : c == 'b' ? s8 : c == 'c' ? s44 : c == 'd' ? s48 : NULL;
}

/* "0.3" : entries of the parameters in order, "-" for none */
static void
check(const char *entries, const char *params, const char *expect)
{
    ckpi_match_entry e[32];
    ckpi_match_param p[32];
    uint32_t to[32];
    char got[33] = "", names[32][24];
    unsigned group = 0;
    size_t n = strlen(entries), m = 0;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "e%zu", i);
        e[i].name = names[i];
        e[i].shape = shape_of(entries[i], &e[i].ndim);
    }
    for (const char *c = params; *c != 0; c++) {
        if (*c >= '0' && *c <= '9') {
            group = (unsigned)(*c - '0');
            continue;
        }
        p[m] = (ckpi_match_param){.group = group};
        p[m].shape = shape_of(*c, &p[m].ndim);
        m++;
    }
    assert_int_equal(ckpi_match_solve(e, n, p, m, to, NULL), CKP_OK);
    for (size_t k = 0; k < m; k++)
        got[k] = to[k] == NONE ? '-' : (char)('0' + to[k]);
    if (strcmp(got, expect) != 0)
        fail_msg("%s <- %s gives %s, not %s", entries, params, got, expect);
}

static void
test_order(void **state)
{
    (void)state;
    check("cacb", "0cacb", "0123");       /* every entry is a parameter */
    check("cadb", "0cdb", "023");         /* a buffer between */
    check("caab", "0cab", "---");         /* which a? */
    check("caab", "0caab", "0123");
    check("ca", "0cab", "---");           /* more parameters than entries */
    check("ca", "0ac", "--");             /* another order */
    check("", "0a", "-");
    check("a", "0?", "0");
    check("ab", "0?", "-");
    check("cadb", "0c?b", "---");
}

static void
test_groups(void **state)
{
    (void)state;
    check("cacadb", "0ccd1aab", "024135");      /* decay and no decay */
    check("cc", "0c1c", "--");                  /* either way round */
    check("cd", "0d1c", "10");
    check("cca", "0cc1a", "012");
    check("ccc", "0cc1c", "---");
    check("aca", "0ca1a", "120");               /* the first group has only one way, which leaves one to the second */
    check("cab", "0c1d", "0-");                 /* one group without a place */
}

static void
test_names(void **state)
{
    (void)state;
    static const ckpi_match_entry e[] = {{"x", 1, s4}, {"y", 1, s4}, {"z", 2, s44}};
    const ckpi_match_param p[] = {{"y", 1, s4, 0}, {"x", 1, s4, 0}, {"z", 1, s4, 1}, {"w", 1, s4, 1}, {"x", 1, s4, 1}};
    uint32_t to[5];
    assert_int_equal(ckpi_match_solve(e, 3, p, 5, to, NULL), CKP_OK);
    assert_int_equal(to[0], 1);
    assert_int_equal(to[1], 0);
    assert_int_equal(to[2], NONE);      /* another shape */
    assert_int_equal(to[3], NONE);      /* no such entry */
    assert_int_equal(to[4], NONE);      /* taken */
}

static void
test_strip(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"module.a.b", "a.b"}, {"_orig_mod.module.a", "a"}, {"net._orig_mod.a", "net.a"},
                                           {"module.", "module."}, {"xmodule.a", "xmodule.a"}, {"a", "a"}, {"", ""}};
    char out[64];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        (void)ckpi_match_strip(pairs[i][0], strlen(pairs[i][0]), out);
        assert_string_equal(out, pairs[i][1]);
    }
    assert_true(ckpi_match_is_buffer("bn.running_mean"));
    assert_true(ckpi_match_is_buffer("num_batches_tracked"));
    assert_false(ckpi_match_is_buffer("xrunning_mean"));
}

/* ---- a whole state ---- */

typedef struct maker { ckp_state *s; float data[64][4]; unsigned n; } maker;

static void
put(maker *m, ckp_tree_node node)
{
    assert_int_equal(ckp_state_tree_put(m->s, &node, NULL), CKP_OK);
}

static void
text(maker *m, const char *t)
{
    put(m, (ckp_tree_node){.type = CKP_TREE_STR, .data = t, .len = strlen(t)});
}

static void
open_node(maker *m, ckp_tree_type type, uint64_t count)
{
    put(m, (ckp_tree_node){.type = type, .count = count});
}

static void
tensor(maker *m, const char *name, uint64_t n)
{
    ckp_tensor t = CKP_TENSOR_INIT;
    uint32_t index;
    t.dtype = CKP_F32;
    t.ndim = n == 0 ? 0 : 1;
    t.shape = &n;
    t.data = m->data[m->n++];
    assert_int_equal(ckp_state_add_tensor(m->s, name, CKP_ROLE_OTHER, NULL, &t, &index, NULL), CKP_OK);
    put(m, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = index});
}

static void
model(maker *m, const char *prefix, uint64_t a, uint64_t b)
{
    char name[32];
    open_node(m, CKP_TREE_ORDERED_DICT, 2);
    text(m, "a");
    (void)snprintf(name, sizeof name, "%s/a", prefix);
    tensor(m, name, a);
    text(m, "b");
    (void)snprintf(name, sizeof name, "%s/b", prefix);
    tensor(m, name, b);
}

/* Adam's state for parameters 0 and 1 of 3 and 4 elements */
static void
optimizer(maker *m, bool named)
{
    static const char *const names[2][3] = {{"o/0/m", "o/0/v", "o/0/step"}, {"o/1/m", "o/1/v", "o/1/step"}};
    open_node(m, CKP_TREE_DICT, 2);
    text(m, "state");
    open_node(m, CKP_TREE_DICT, 2);
    for (uint64_t i = 0; i < 2; i++) {
        put(m, (ckp_tree_node){.type = CKP_TREE_INT, .i = (int64_t)i});
        open_node(m, CKP_TREE_DICT, 3);
        text(m, "exp_avg");
        tensor(m, names[i][0], 3 + i);
        text(m, "exp_avg_sq");
        tensor(m, names[i][1], 3 + i);
        text(m, "step");
        tensor(m, names[i][2], 0);
        m->data[m->n - 1][0] = 7;
    }
    text(m, "param_groups");
    open_node(m, CKP_TREE_LIST, 1);
    open_node(m, CKP_TREE_DICT, named ? 3 : 2);
    text(m, "betas");
    open_node(m, CKP_TREE_TUPLE, 2);
    put(m, (ckp_tree_node){.type = CKP_TREE_FLOAT, .re = 0.9});
    put(m, (ckp_tree_node){.type = CKP_TREE_FLOAT, .re = 0.95});
    if (named) {
        text(m, "param_names");
        open_node(m, CKP_TREE_LIST, 2);
        text(m, "module.a");
        text(m, "module.b");
    }
    text(m, "params");
    open_node(m, CKP_TREE_LIST, 2);
    put(m, (ckp_tree_node){.type = CKP_TREE_INT, .i = 0});
    put(m, (ckp_tree_node){.type = CKP_TREE_INT, .i = 1});
}

static unsigned notices;
static void
count_notice(void *user, const char *text_of_it)
{
    (void)user;
    assert_non_null(strstr(text_of_it, "param_groups[0]"));
    notices++;
}

static void
start(maker *m, uint64_t pairs)
{
    memset(m, 0, sizeof *m);
    notices = 0;
    assert_int_equal(ckp_state_new(&m->s, NULL), CKP_OK);
    open_node(m, CKP_TREE_DICT, pairs);
}

static void
check_roles(maker *m, const char *owner, bool matched)
{
    assert_int_equal(ckpi_match_state(m->s, count_notice, NULL, NULL), CKP_OK);
    assert_int_equal(ckpi_state_seal(m->s, NULL), CKP_OK);
    const ckpi_tensor *first = &m->s->t[ckpi_state_find(m->s, "o/0/m")];
    const ckpi_tensor *second = &m->s->t[ckpi_state_find(m->s, "o/0/v")];
    assert_int_equal(first->role, matched ? CKP_ROLE_M : CKP_ROLE_OTHER);
    assert_int_equal(second->role, matched ? CKP_ROLE_V : CKP_ROLE_OTHER);
    assert_int_equal(notices, matched ? 0 : 1);
    if (matched) {
        assert_string_equal(m->s->t[first->owner].name, owner);
        const ckpi_adam *adam = ckpi_state_adam(m->s, first->owner);
        assert_non_null(adam);
        assert_int_equal(adam->step, 7);
        assert_true(adam->beta1 == 0.9 && adam->beta2 == 0.95);
    }
    ckp_state_free(m->s);
}

static void
test_state(void **state)
{
    (void)state;
    maker m;
    start(&m, 2);
    text(&m, "model");
    model(&m, "w", 3, 4);
    text(&m, "optimizer");
    optimizer(&m, false);
    check_roles(&m, "w/a", true);

    start(&m, 2);      /* shapes that do not fit */
    text(&m, "model");
    model(&m, "w", 4, 3);
    text(&m, "optimizer");
    optimizer(&m, false);
    check_roles(&m, "", false);

    start(&m, 3);      /* an average of the model beside it */
    text(&m, "ema");
    model(&m, "e", 3, 4);
    text(&m, "model");
    model(&m, "w", 3, 4);
    text(&m, "opt");
    optimizer(&m, true);
    check_roles(&m, "w/a", true);

    start(&m, 3);      /* two models, neither of which is called one */
    text(&m, "x");
    model(&m, "x", 3, 4);
    text(&m, "y");
    model(&m, "y", 3, 4);
    text(&m, "opt");
    optimizer(&m, false);
    check_roles(&m, "", false);

    start(&m, 2);      /* Lightning: a list of optimizers */
    text(&m, "state_dict");
    model(&m, "w", 3, 4);
    text(&m, "optimizer_states");
    open_node(&m, CKP_TREE_LIST, 1);
    optimizer(&m, false);
    check_roles(&m, "w/a", true);
}

/* What an optimizer keeps for each parameter goes; its groups, the model and what else refers to a tensor stay. */
static void
test_drop(void **state)
{
    (void)state;
    maker m;
    ckpi_dropped gone;
    uint64_t values = 0;
    char names[200];

    start(&m, 4);
    text(&m, "optimizer");
    optimizer(&m, true);
    text(&m, "model");
    model(&m, "w", 3, 4);
    text(&m, "kept");            /* the first moment once more: it must not go with the optimizer */
    put(&m, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = 0});
    text(&m, "p");
    open_node(&m, CKP_TREE_DICT, 1);
    text(&m, "n");
    put(&m, (ckp_tree_node){.type = CKP_TREE_NONE});
    assert_int_equal(ckpi_drop_optimizers(m.s, &gone, NULL), CKP_OK);
    assert_int_equal(gone.tensors, 5);
    assert_int_equal(gone.bytes, (3 + 4 + 4 + 1 + 1) * 4);
    assert_int_equal(m.s->n, 3);
    assert_int_equal(ckpi_state_find(m.s, "o/0/m"), 0);
    assert_int_equal(ckpi_state_find(m.s, "o/1/m"), UINT32_MAX);
    assert_int_equal(ckpi_match_state(m.s, count_notice, NULL, NULL), CKP_OK);
    assert_int_equal(ckpi_state_seal(m.s, NULL), CKP_OK);
    assert_int_equal(m.s->t[ckpi_state_find(m.s, "w/a")].role, CKP_ROLE_WEIGHT);
    assert_int_equal(m.s->t[0].role, CKP_ROLE_OTHER);
    assert_int_equal(notices, 0);
    /* betas, param_names, params: two each; and p/n */
    assert_int_equal(ckpi_tree_plain(m.s->tree.data, m.s->tree.len, &values, names, sizeof names, NULL), CKP_OK);
    assert_int_equal(values, 7);
    assert_non_null(strstr(names, "optimizer/param_groups/0/betas/0, "));
    assert_int_equal(ckpi_tree_plain(m.s->tree.data, m.s->tree.len, &values, names, 8, NULL), CKP_OK);
    assert_string_equal(names, "...");      /* no room for the paths */
    /* a second time there is nothing to drop */
    assert_int_equal(ckpi_drop_optimizers(m.s, &gone, NULL), CKP_OK);
    assert_int_equal(gone.tensors, 0);
    ckp_state_free(m.s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order), cmocka_unit_test(test_groups), cmocka_unit_test(test_names),
        cmocka_unit_test(test_strip), cmocka_unit_test(test_state), cmocka_unit_test(test_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
