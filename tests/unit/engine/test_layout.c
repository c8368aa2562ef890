/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements are coded together: groups cover every stored element once, within their bounds, moments beside their weights. */
#include "chain.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/dtype.h"
#include "base/limits.h"

typedef struct built { ckp_state *s; ckpi_table *t; ckpi_layout *l; } built;

static built
build(const sim *m, bool lossy, bool weights_only, const bool *no_loss, ckpi_packing packing)
{
    built b = {.s = sim_state(m)};
    ckp_error err;
    assert_ok(ckpi_state_seal(b.s, &err));
    assert_ok(ckpi_table_from_state(&b.t, b.s, &err));
    assert_ok(ckpi_layout_new(&b.l, b.t, lossy, weights_only, no_loss, packing, &err));
    return b;
}

static void
unbuild(built *b)
{
    ckpi_layout_free(b->l);
    ckpi_table_free(b->t);
    ckp_state_free(b->s);
}

/* Elements of a tensor that the groups hold, as weights or as somebody's moments, in order and without overlap. */
static void
check_cover(const built *b, uint32_t tensor)
{
    uint64_t next = 0;
    for (size_t g = 0; g < b->l->n; g++)
        for (size_t k = 0; k < b->l->g[g].n_pieces; k++) {
            const ckpi_group *grp = &b->l->g[g];
            if (grp->piece[k].tensor != tensor && !(grp->lossy && ((grp->has_m && grp->m[k] == tensor) || (grp->has_v && grp->v[k] == tensor))))
                continue;
            assert_int_equal(grp->piece[k].first, next);
            next += grp->piece[k].count;
        }
    assert_int_equal(next, b->t->rec[tensor].alias_of == CKPI_NO_TENSOR ? b->t->rec[tensor].numel : 0);
}

static void
check_groups(const built *b)
{
    for (size_t g = 0; g < b->l->n; g++) {
        const ckpi_group *grp = &b->l->g[g];
        uint64_t n = 0, bytes = 0;
        assert_true(grp->n_pieces > 0 && grp->n_pieces <= CKPI_MAX_CHUNK_PIECES && grp->n <= CKPI_MAX_CHUNK_ELEMS);
        for (size_t k = 0; k < grp->n_pieces; k++) {
            const ckpi_piece *p = &grp->piece[k];
            const ckpi_rec *r = &b->t->rec[p->tensor];
            uint64_t some = 0;
            assert_true(ckpi_dtype_bytes(r->dtype, p->first, &some) && ckpi_dtype_bytes(r->dtype, p->count, &some));
            assert_true(r->dtype == grp->dtype && r->role == grp->role);
            const size_t cols = ckpi_matrix_cols(r);
            if (grp->lossy && cols != 0)                 /* whole rows: factors are local */
                assert_true(p->first % cols == 0 && p->count % cols == 0);
            n += p->count;
            bytes += some;
        }
        assert_true(n == grp->n && bytes == grp->bytes);
    }
    for (uint32_t t = 0; t < b->t->n; t++)
        check_cover(b, t);
}

static const ckpi_group *
group_of(const built *b, uint32_t tensor)
{
    for (size_t g = 0; g < b->l->n; g++)
        for (size_t k = 0; k < b->l->g[g].n_pieces; k++)
            if (b->l->g[g].piece[k].tensor == tensor)
                return &b->l->g[g];
    return NULL;
}

static sim *
many(void)
{
    static const uint64_t big[2] = {1500, 1000}, mat[2] = {64, 65}, vec[1] = {50}, long_[1] = {3000000}, packed[2] = {50000, 33}, none[1] = {0};
    sim *m = sim_new(1);
    (void)sim_add_weight(m, "big", CKP_F32, CKP_F32, CKP_F32, 2, big);
    for (int i = 0; i < 30; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "b%d", i);
        (void)sim_add_weight(m, name, i % 3 != 0 ? CKP_F32 : CKP_BF16, CKP_F32, i % 5 != 0 ? CKP_F32 : 0, i % 2 ? 1 : 2, i % 2 ? vec : mat);
    }
    (void)sim_add(m, "long", CKP_ROLE_OTHER, SIM_NONE, CKP_U8, 1, long_);
    (void)sim_add(m, "packed", CKP_ROLE_OTHER, SIM_NONE, CKP_F4_PACKED, 2, packed);
    (void)sim_add(m, "none", CKP_ROLE_WEIGHT, SIM_NONE, CKP_F32, 1, none);
    (void)sim_add(m, "scalar", CKP_ROLE_OTHER, SIM_NONE, CKP_I64, 0, NULL);
    return m;
}

static void
test_cover(void **state)
{
    (void)state;
    sim *m = many();
    for (int lossy = 0; lossy < 2; lossy++)
        for (int only = 0; only < 2; only++)
            for (int p = 0; p < 2; p++) {
                built b = build(m, lossy, only, NULL, p == 0 ? CKPI_PACK_GROUPED : CKPI_PACK_ORDERED);
                check_groups(&b);
                for (size_t g = 0; g < b.l->n; g++)
                    assert_true(lossy || !b.l->g[g].lossy);
                unbuild(&b);
            }
    sim_free(m);
}

/* In order means: the tensors of the chunks rise, so that a pipe can be decoded as it comes. */
static void
test_ordered(void **state)
{
    (void)state;
    sim *m = many();
    built b = build(m, false, false, NULL, CKPI_PACK_ORDERED);
    uint64_t last = 0, at = 0;
    for (size_t g = 0; g < b.l->n; g++)
        for (size_t k = 0; k < b.l->g[g].n_pieces; k++) {
            const ckpi_piece *p = &b.l->g[g].piece[k];
            assert_true(p->tensor > last || (p->tensor == last && p->first >= at));
            last = p->tensor;
            at = p->first;
        }
    unbuild(&b);
    sim_free(m);
}

static void
test_who_is_lossy(void **state)
{
    (void)state;
    static const uint64_t mat[2] = {80, 80};
    sim *m = sim_new(1);
    const uint32_t adam = sim_add_weight(m, "adam", CKP_F32, CKP_F32, CKP_F32, 2, mat), sgd = sim_add_weight(m, "sgd", CKP_F16, CKP_F16, 0, 2, mat),
                   bare = sim_add_weight(m, "bare", CKP_F32, 0, 0, 2, mat), f64 = sim_add_weight(m, "f64", CKP_F64, CKP_F32, CKP_F32, 2, mat),
                   odd = sim_add(m, "odd", CKP_ROLE_WEIGHT, SIM_NONE, CKP_F32, 2, mat);
    (void)sim_add(m, "odd/v", CKP_ROLE_V, odd, CKP_I32, 2, mat);            /* is no float */
    const uint32_t late_v = sim_add(m, "bare/v", CKP_ROLE_V, bare, CKP_BF16, 2, mat);
    built b = build(m, true, false, NULL, CKPI_PACK_GROUPED);
    check_groups(&b);
    assert_true(group_of(&b, adam)->lossy && group_of(&b, adam)->has_v && group_of(&b, adam)->has_m && !group_of(&b, adam)->fine);
    assert_true(group_of(&b, sgd)->lossy && !group_of(&b, sgd)->has_v && group_of(&b, sgd)->has_m);
    assert_true(group_of(&b, bare)->lossy && group_of(&b, bare)->has_v && group_of(&b, late_v) == NULL);
    assert_true(!group_of(&b, f64)->lossy && !group_of(&b, odd)->lossy);
    unbuild(&b);
    b = build(m, true, true, NULL, CKPI_PACK_GROUPED);
    assert_true(group_of(&b, odd)->lossy && !group_of(&b, f64)->lossy);
    unbuild(&b);
    /* "never lossy" said of a weight or of a moment holds for the three, also with weights only */
    for (int only = 0; only < 2; only++)
        for (uint32_t t = adam; t <= adam + 2; t++) {
            bool no_loss[16] = {false};
            no_loss[t] = true;
            b = build(m, true, only, no_loss, CKPI_PACK_GROUPED);
            check_groups(&b);
            assert_true(!group_of(&b, adam)->lossy && !group_of(&b, adam + 1)->lossy && !group_of(&b, adam + 2)->lossy);
            unbuild(&b);
        }
    sim_free(m);
}

static void
test_fine(void **state)
{
    (void)state;
    static const uint64_t small[2] = {64, 63}, large[2] = {64, 64}, vec[1] = {100000};
    sim *m = sim_new(1);
    const uint32_t a = sim_add_weight(m, "a", CKP_F32, CKP_F32, CKP_F32, 2, small), c = sim_add_weight(m, "c", CKP_F32, CKP_F32, CKP_F32, 2, large),
                   v = sim_add_weight(m, "v", CKP_F32, CKP_F32, CKP_F32, 1, vec);
    built b = build(m, true, false, NULL, CKPI_PACK_GROUPED);
    assert_true(group_of(&b, a)->fine && !group_of(&b, c)->fine && group_of(&b, v)->fine);
    unbuild(&b);
    sim_free(m);
}

static void
test_equal(void **state)
{
    (void)state;
    static const uint64_t vec[1] = {50};
    sim *m = many(), *n = many();
    (void)sim_add_weight(n, "more", CKP_F32, CKP_F32, CKP_F32, 1, vec);
    built a = build(m, true, false, NULL, CKPI_PACK_GROUPED), b = build(m, true, false, NULL, CKPI_PACK_GROUPED),
          c = build(n, true, false, NULL, CKPI_PACK_GROUPED), d = build(m, false, false, NULL, CKPI_PACK_GROUPED);
    assert_true(ckpi_layout_equal(a.l, b.l));
    assert_false(ckpi_layout_equal(a.l, c.l));
    assert_false(ckpi_layout_equal(a.l, d.l));
    unbuild(&a);
    unbuild(&b);
    unbuild(&c);
    unbuild(&d);
    sim_free(m);
    sim_free(n);
}

static void
test_matrix_cols(void **state)
{
    (void)state;
    const uint64_t s[4] = {8, 3, 5, 7}, wide[2] = {2, 65536}, wider[2] = {2, 65537}, narrow[2] = {100, 15}, box[4] = {8, 1, 5, 7};
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 4, .shape = s}), 105);
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 4, .shape = s, .box_shape = box}), 35);
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 4, .shape = s, .flat = true}), 0);
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 1, .shape = s}), 0);
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 0}), 0);
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 2, .shape = wide}), 65536);
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 2, .shape = wider}), 0);
    assert_int_equal(ckpi_matrix_cols(&(ckpi_rec){.ndim = 2, .shape = narrow}), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cover), cmocka_unit_test(test_ordered), cmocka_unit_test(test_who_is_lossy),
                                       cmocka_unit_test(test_fine), cmocka_unit_test(test_equal), cmocka_unit_test(test_matrix_cols)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
