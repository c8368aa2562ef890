/* SPDX-License-Identifier: Apache-2.0 */
#include "copies.h"
#include <stdio.h>
#include "base/buf.h"

void
copies_source(fault_disk *d, trace *t)
{
    ckpi_store *s = NULL;
    char dir[CKPI_DIR_NAME_MAX];
    assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL));
    assert_ok(trace_save(t, s, 1, NULL, dir));
    assert_ok(trace_save(t, s, 2, dir, dir));
    assert_ok(trace_save(t, s, 3, dir, dir));
    assert_ok(trace_save(t, s, 4, NULL, dir));
    assert_ok(trace_save(t, s, 5, dir, dir));
    ckpi_store_free(s);
}

ckp_status
copies_run(fault_disk *from, fault_disk *to, const ckpi_copy_ask *ask, ckpi_copied *done, ckp_error *err)
{
    static const ckpi_copy_ask all = {0};
    ckpi_store *a = NULL, *b = NULL;
    ckpi_copied mine;
    ckpi_buf identity = CKPI_BUF_INIT;
    const ckpi_store_options opt = {.identity = &identity};
    ckp_status st = run_open(&a, fault_mount(from), CKPI_STORE_READ, err);
    if (st == CKP_OK)
        st = ckpi_store_identity(a, &identity, err);
    if (st == CKP_OK)
        st = ckpi_store_open(&b, fault_mount(to), CKPI_STORE_WRITE, &opt, err);
    if (st == CKP_OK)
        st = ckpi_store_copy(a, b, ask != NULL ? ask : &all, done != NULL ? done : &mine, err);
    ckpi_store_free(b);
    ckpi_store_free(a);
    ckpi_buf_free(&identity);
    return st;
}

void
copies_train(fault_disk *d, uint64_t first, unsigned n, bool delta)
{
    ckpi_store *s = NULL;
    ckpi_chain c = CKPI_CHAIN_INIT;
    char dir[CKPI_DIR_NAME_MAX], name[CKPI_DIR_NAME_MAX];
    assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL));
    assert_ok(ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL));
    snprintf(dir, sizeof dir, "%s", c.dir[c.n - 1]);
    ckpi_chain_free(&c);
    for (unsigned i = 0; i < n; i++) {
        assert_ok(run_save(s, first + i, delta ? dir : NULL, 2, name, NULL));
        memcpy(dir, name, sizeof dir);
    }
    ckpi_store_free(s);
}

void
copies_prune(fault_disk *d, uint32_t last)
{
    ckpi_store *s = NULL;
    const ckpi_retention r = {.last = last};
    assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL));
    assert_ok(ckpi_store_retain(s, &r, NULL, NULL));
    ckpi_store_free(s);
}

static bool
is_source(const trace *t, const char *dir)
{
    for (size_t i = 0; i < t->n_kept; i++)
        if (strcmp(t->kept[i], dir) == 0)
            return true;
    return false;
}

size_t
copies_judge(fault_disk *d, const trace *t, const char *what)
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    ckp_error err;
    size_t n = 0;
    const ckp_status st = run_open(&s, fault_mount(d), CKPI_STORE_READ, NULL);
    if (st == CKP_ENOTFOUND)
        return 0;                        /* not yet a run */
    assert_ok(st);
    assert_ok(ckpi_store_list(s, &e, NULL));
    for (size_t i = 0; i < e.n; i++) {
        if (e.v[i].health == CKPI_HEALTH_INCOMPLETE)
            continue;
        if (e.v[i].health != CKPI_HEALTH_OK || !is_source(t, e.v[i].dir))
            fail_msg("%s: %s: %s", what, e.v[i].dir, e.v[i].reason != NULL ? e.v[i].reason : "is not the source's");
        if (ckpi_store_check(s, e.v[i].dir, 2, NULL, NULL, &err) != CKP_OK)
            fail_msg("%s: %s: %s", what, e.v[i].dir, err.text);
        n++;
    }
    ckpi_entries_free(&e);
    ckpi_store_free(s);
    return n;
}

void
copies_steps(fault_disk *d, const uint64_t *step, size_t n)
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_READ, NULL));
    assert_ok(ckpi_store_list(s, &e, NULL));
    assert_int_equal(e.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(e.v[i].step, step[i]);
        assert_int_equal(e.v[i].health, CKPI_HEALTH_OK);
        assert_ok(ckpi_store_check(s, e.v[i].dir, 2, NULL, NULL, NULL));
    }
    ckpi_entries_free(&e);
    ckpi_store_free(s);
}
