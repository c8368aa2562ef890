/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of files, found by content in any order; chunks by element; units by weight. */
#include "chain.h"
#include <stdlib.h>

static chain *
make(const char *profile, size_t saves, bool train)
{
    static const uint64_t mat[2] = {70, 64}, vec[1] = {200}, big[2] = {1400, 900};
    sim *m = sim_new(3);
    chain *c = chain_new(profile, 1, UINT32_MAX);
    (void)sim_add_weight(m, "a", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add_weight(m, "b", CKP_F32, CKP_F32, CKP_F32, 1, vec);
    (void)sim_add_weight(m, "c", CKP_F32, CKP_F32, CKP_F32, 1, vec);
    (void)sim_add_weight(m, "big", CKP_F32, CKP_F32, 0, 2, big);
    (void)sim_add(m, "o", CKP_ROLE_OTHER, SIM_NONE, CKP_I32, 1, vec);
    for (size_t i = 0; i < saves; i++) {
        if (train || i == 0)
            sim_train(m);
        chain_save(c, m, false, false);
    }
    sim_free(m);
    return c;
}

static ckpi_fmt_file *
open_one(const chain *c, size_t i)
{
    ckpi_reader *r = NULL;
    ckpi_fmt_file *f = NULL;
    ckp_error err;
    assert_ok(ckpi_reader_mem(&r, c->file[i].data, c->file[i].len, "file", &err));
    assert_ok(ckpi_fmt_open(&f, r, &err));
    return f;
}

/* Files after the first in any order, some twice, and some that do not belong; also when nothing changed between saves. */
static void
test_any_order(void **state)
{
    (void)state;
    static const size_t orders[][6] = {{4, 3, 2, 1, 0, 0}, {4, 0, 1, 2, 3, 3}, {4, 1, 3, 0, 2, 1}, {4, 2, 0, 0, 1, 3}, {2, 4, 3, 1, 0, 0}};
    for (int train = 0; train < 2; train++) {
        chain *c = make("resume", 5, train);
        for (size_t o = 0; o < CHECK_COUNT(orders); o++) {
            ckpi_fmt_file *f[6];
            ckpi_lineage *l = NULL;
            ckp_error err;
            for (size_t i = 0; i < 6; i++)
                f[i] = open_one(c, orders[o][i]);
            if (ckpi_lineage_new(&l, f, 6, &err) != CKP_OK)
                fail_msg("order %zu: %s", o, err.text);
            assert_int_equal(l->n, orders[o][0] + 1);
            for (size_t i = 0; i < l->n; i++)
                assert_int_equal(l->level[i].f->info.chain, orders[o][0] - i);
            assert_ok(chain_decode_all(c, l, &err));
            assert_ok(ckpi_lineage_check_data(l, c->ctx, &err));
            ckpi_lineage_free(l);
        }
        chain_free(c);
    }
}

static void
test_missing(void **state)
{
    (void)state;
    chain *c = make("resume", 4, true);
    for (size_t gone = 0; gone < 3; gone++) {
        ckpi_fmt_file *f[4];
        ckpi_lineage *l = NULL;
        ckp_error err;
        size_t n = 0;
        for (size_t i = 4; i-- > 0;)
            if (i != gone)
                f[n++] = open_one(c, i);
        assert_status(ckpi_lineage_new(&l, f, n, &err), CKP_EBASE);
        assert_null(l);
        assert_string_equal(err.file, "file");
    }
    chain_free(c);
}

/* Every element of every tensor is found in the chunk that holds it; none beyond. */
static void
test_find(void **state)
{
    (void)state;
    chain *c = make("resume", 2, true);
    ckpi_lineage *l = chain_open(c, 1);
    for (uint32_t t = 0; t < l->table->n; t++) {
        const uint64_t n = l->table->rec[t].numel;
        for (uint64_t e = 0; e < n; e += n > 5000 ? 997 : 1) {
            const ckpi_chunk_key *k = ckpi_lineage_find(l, 0, t, e);
            assert_non_null(k);
            const ckpi_piece *p = &l->level[0].f->chunk[k->chunk].piece[k->piece];
            assert_true(p->tensor == t && p->first <= e && e - p->first < p->count);
        }
        assert_null(ckpi_lineage_find(l, 0, t, n));
        assert_null(ckpi_lineage_find(l, 0, t, UINT64_MAX));
    }
    assert_null(ckpi_lineage_find(l, 0, 12345, 0));
    for (size_t i = 0; i < l->level[0].f->n_chunks; i++) {
        size_t at = 0;
        assert_non_null(ckpi_lineage_like(l, 1, &l->level[0].f->chunk[i], &at));
        assert_null(ckpi_lineage_like(l, 2, &l->level[0].f->chunk[i], NULL));
    }
    ckpi_lineage_free(l);
    chain_free(c);
}

/* Each chunk is in one unit; weights have their moments beside them, and units come in the order of their first chunks. */
static void
test_units(void **state)
{
    (void)state;
    static const char *const profiles[] = {"lossless", "resume", "weights"};
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        chain *c = make(profiles[p], 1, true);
        ckpi_lineage *l = chain_open(c, 0);
        ckpi_unit *u = NULL;
        ckp_error err;
        size_t n = 0, seen = 0;
        uint32_t last = 0;
        assert_ok(ckpi_units(l, &u, &n, &err));
        for (size_t i = 0; i < n; i++) {
            const uint32_t k[3] = {u[i].w, u[i].m, u[i].v};
            uint32_t first = UINT32_MAX;
            for (int j = 0; j < 3; j++) {
                seen += k[j] != CKPI_NO_CHUNK;
                first = k[j] < first ? k[j] : first;
            }
            assert_true(i == 0 || first > last);
            last = first;
            if (p == 0)
                assert_true(u[i].m == CKPI_NO_CHUNK && u[i].v == CKPI_NO_CHUNK);
        }
        assert_int_equal(seen, l->level[0].f->n_chunks);
        free(u);
        ckpi_lineage_free(l);
        chain_free(c);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_order), cmocka_unit_test(test_missing), cmocka_unit_test(test_find),
                                       cmocka_unit_test(test_units)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
