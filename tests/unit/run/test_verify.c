/* SPDX-License-Identifier: Apache-2.0 */
/* Checking all, a sample, or as much as the time allows: each chunk of a run once, what is damaged by name, and nothing more than was asked. */
#define _GNU_SOURCE
#include <math.h>
#include "help.h"
#include <ckpress/run_verify.h>
#include "harness/failalloc.h"

enum { SAVES = 5 };

typedef struct told { unsigned n, named; ckp_error last; } told;

static void
take(void *user, const char *what, const ckp_error *e)
{
    told *t = user;
    assert_true(what[0] != '\0' && e->text[0] != '\0');
    t->n++;
    t->named += e->file[0] != '\0' && e->tensor[0] != '\0' && e->offset != CKP_NO_OFFSET;
    t->last = *e;
}

static char *
make_run(ckp_profile p, bool small)
{
    char *dir = help_dir();
    sim *m = help_model(11, small);
    ckp_run *run = help_open(dir, p, 3, 0);
    ckp_error err;

    for (int i = 0; i < SAVES; i++) {
        help_save(run, m, NULL);
        sim_train(m);
    }
    OK_OR_FAIL(ckp_run_close(run, &err));
    sim_free(m);
    return dir;
}

static ckp_verified
check(const char *dir, ckp_verify_options o, ckp_status want, told *t)
{
    ckp_verified done = {.size = sizeof done};
    ckp_error e;

    *t = (told){0};
    o.threads = 2;
    o.fn = take;
    o.user = t;
    assert_status(ckp_verify_with(dir, &o, &done, &e), want);
    assert_int_equal(done.findings, t->n);
    return done;
}

static ckp_verify_options
options(ckp_verify_level level, double share, uint64_t seed)
{
    ckp_verify_options o = CKP_VERIFY_OPTIONS_INIT;
    o.level = level;
    o.share = share;
    o.seed = seed;
    return o;
}

/* Every chunk of every file once: as many as the tables of all checkpoints say, no more. */
static void
test_all(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        char *dir = make_run((ckp_profile)p, false);
        told t;
        const ckp_verified none = check(dir, options(CKP_VERIFY_STRUCTURE, 1.0, 0), CKP_OK, &t);
        const ckp_verified data = check(dir, options(CKP_VERIFY_DATA, 1.0, 0), CKP_OK, &t);
        const ckp_verified deep = check(dir, options(CKP_VERIFY_DECODE, 1.0, 0), CKP_OK, &t);
        assert_int_equal(none.chunks + none.bytes, 0);
        assert_int_equal(data.chunks, deep.chunks);
        assert_int_equal(data.bytes, deep.bytes);
        assert_true(data.chunks > SAVES && data.bytes < data.stored_bytes && data.bytes > data.stored_bytes / 4);
        assert_true(data.checkpoints >= SAVES && data.looked_at == data.checkpoints && data.whole == data.checkpoints && !data.out_of_time);
        help_remove(dir);
    }
}

/* Seeds choose, each chunk sooner or later, about as many as were asked for; damage is found when its chunk is chosen, and only then. */
static void
test_sample(void **state)
{
    (void)state;
    char *dir = make_run(CKP_PROFILE_LOSSLESS, false);
    told t;
    const ckp_verified all = check(dir, options(CKP_VERIFY_DATA, 1.0, 0), CKP_OK, &t);
    unsigned found = 0;
    uint64_t sum = 0;

    size_t len;
    char *shard = help_shard(dir, 2);
    uint8_t *bytes = help_file(shard, &len);
    bytes[len / 2] ^= 1;
    help_write(shard, bytes, len);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        ckp_verified d[2];
        for (int twice = 0; twice < 2; twice++) {
            ckp_verify_options o = options(CKP_VERIFY_DATA, 0.25, seed);
            d[twice] = (ckp_verified){.size = sizeof d[0]};
            const ckp_status st = ckp_verify_with(dir, &o, &d[twice], NULL);
            assert_true(st == CKP_OK || st == CKP_ECORRUPT);
            assert_int_equal(st != CKP_OK, d[twice].findings);
        }
        assert_memory_equal(&d[0], &d[1], sizeof d[0]);
        found += (unsigned)d[0].findings;
        sum += d[0].chunks + d[0].findings;
    }
    assert_true(found >= 2 && found <= 25);              /* of 40, a quarter of which is expected */
    assert_true(sum >= 8 * all.chunks && sum <= 12 * all.chunks);
    free(shard);
    free(bytes);
    help_remove(dir);
}

/* Damage in two chunks of a base: two findings with names, whatever stands on it; what does not, stays whole. */
static void
test_damage(void **state)
{
    (void)state;
    char *dir = make_run(CKP_PROFILE_LOSSLESS, false);
    size_t len;
    char *shard = help_shard(dir, 1);
    uint8_t *bytes = help_file(shard, &len);
    told t;

    bytes[len / 3] ^= 1;
    bytes[len * 2 / 3] ^= 1;
    help_write(shard, bytes, len);
    const ckp_verified structure = check(dir, options(CKP_VERIFY_STRUCTURE, 1.0, 0), CKP_OK, &t);
    assert_int_equal(structure.whole, SAVES);
    for (int level = CKP_VERIFY_DATA; level <= CKP_VERIFY_DECODE; level++) {
        const ckp_verified d = check(dir, options((ckp_verify_level)level, 1.0, 0), CKP_ECORRUPT, &t);
        assert_int_equal(t.n, 2);
        assert_int_equal(t.named, 2);
        assert_int_equal(d.looked_at, SAVES);
        assert_int_equal(d.whole, SAVES - 3);            /* a key, and two deltas on it */
    }
    /* so many that not each is told */
    memset(bytes + len / 8, 0x5A, len * 6 / 8);
    help_write(shard, bytes, len);
    check(dir, options(CKP_VERIFY_DATA, 1.0, 0), CKP_ECORRUPT, &t);
    assert_true(t.n >= 3 && t.n <= 17);
    free(shard);
    free(bytes);
    help_remove(dir);
}

static int
stop(void *user, uint64_t done, uint64_t total)
{
    unsigned *calls = user;
    assert_true(done <= total);
    return ++*calls >= 3;
}

static void
test_ends(void **state)
{
    (void)state;
    char *dir = make_run(CKP_PROFILE_RESUME, true);
    told t;
    unsigned calls = 0;
    ckp_verify_options o = options(CKP_VERIFY_DATA, 1.0, 0);
    ckp_verified d = {.size = sizeof d};
    ckp_error e;

    o.max_seconds = 1e-9;
    const ckp_verified none = check(dir, o, CKP_OK, &t);
    assert_true(none.out_of_time && none.looked_at == 0 && none.chunks == 0 && none.whole == 0 && none.checkpoints >= SAVES);
    o.max_seconds = 1000.0;
    assert_false(check(dir, o, CKP_OK, &t).out_of_time);
    o.max_seconds = 0.0;
    o.progress = stop;
    o.progress_user = &calls;
    assert_status(ckp_verify_with(dir, &o, &d, &e), CKP_ECANCELLED);
    assert_int_equal(calls, 3);
    o.progress = NULL;
    const double bad[] = {0.0, -1.0, 1.5, (double)NAN};
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        o.share = bad[i];
        assert_status(ckp_verify_with(dir, &o, &d, &e), CKP_EINVAL);
    }
    o.share = 1.0;
    o.max_seconds = (double)NAN;
    assert_status(ckp_verify_with(dir, &o, &d, &e), CKP_EINVAL);
    o.size--;
    assert_status(ckp_verify_with(dir, &o, &d, &e), CKP_EINVAL);
    help_remove(dir);
}

static ckp_status
verify_deep(void *user)
{
    ckp_verify_options o = options(CKP_VERIFY_DECODE, 0.5, 3);
    ckp_verified d = {.size = sizeof d};
    o.threads = 1;
    return ckp_verify_with(user, &o, &d, NULL);
}

/* Lack of memory is no finding about a file. */
static void
test_memory(void **state)
{
    (void)state;
    char *dir = make_run(CKP_PROFILE_LOSSLESS, true);
    assert_true(failalloc_run(verify_deep, dir, 30, 5) > 30);
    help_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_sample), cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_ends), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
