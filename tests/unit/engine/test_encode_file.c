/* SPDX-License-Identifier: Apache-2.0 */
/* Groups to a file by several threads: who writes, in which order, and what becomes of failures. */
#define _GNU_SOURCE
#include "chain.h"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"

enum { WEIGHTS = 16, GROUPS = 3 * WEIGHTS };   /* lossless tensors of this size have chunks of their own */

static const unsigned threads[] = {1, 2, 3, 8};

/* More groups than any ring here has slots. */
static sim *
many(void)
{
    sim *m = sim_new(5);
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        const uint64_t shape[2] = {CKPI_OWN_CHUNK / 128 + i % 7, 128};
        char name[16];
        (void)snprintf(name, sizeof name, "w%u", (unsigned)i);
        (void)sim_add_weight(m, name, i % 3 ? CKP_F32 : CKP_BF16, CKP_F32, CKP_F32, 2, shape);
    }
    sim_train(m);
    return m;
}

typedef struct told {
    pthread_t caller;
    size_t calls;
    size_t stop_at;              /* 0: never */
    uint64_t last;
} told;

static int
tell(void *user, uint64_t done, uint64_t total)
{
    told *t = user;
    (void)total;
    assert_true(pthread_equal(pthread_self(), t->caller));
    assert_true(done > t->last);
    t->last = done;
    return ++t->calls == t->stop_at;
}

/* One call a group, from the thread that called, with rising sums; the same bytes by any number of threads. */
static void
the_caller_writes_in_order(void **state)
{
    (void)state;
    sim *m = many();
    for (int staged = 0; staged < 2; staged++) {
        chain *first = NULL;
        for (size_t i = 0; i < CHECK_COUNT(threads); i++) {
            chain *c = chain_new("lossless", threads[i], UINT32_MAX);
            told t = {.caller = pthread_self()};
            c->staged = staged != 0;
            c->progress = tell;
            c->progress_user = &t;
            chain_save(c, m, true, false);
            assert_int_equal(c->pred->layout->n, GROUPS);
            assert_true(GROUPS > 2 * c->ctx->in_flight);
            assert_int_equal(t.calls, GROUPS);
            if (first == NULL) {
                first = c;
                continue;
            }
            assert_int_equal(c->file[0].len, first->file[0].len);
            assert_memory_equal(c->file[0].data, first->file[0].data, first->file[0].len);
            chain_free(c);
        }
        chain_free(first);
    }
    sim_free(m);
}

typedef struct helped { chain *c; const sim *m; size_t written; } helped;

static int
count(void *user, uint64_t done, uint64_t total)
{
    helped *h = user;
    (void)done;
    (void)total;
    h->written++;
    (void)usleep(h->written % 8 == 1 ? 15000 : 0);                /* so long that the helper looks */
    return 0;
}

static void
save_low(void *user)
{
    helped *h = user;
    chain_save(h->c, h->m, h->c->n == 0, false);
    ckpi_late_over(h->c->late);
}

static void
help(void *user)
{
    ckpi_late_help(((helped *)user)->c->late);
}

static void
save_helped(chain *c, const sim *m)
{
    helped h = {c, m, 0};
    ckpi_late late;

    ckpi_late_init(&late);
    late.at_least = late.from = late.ends_by = 0.0;
    c->late = &late;
    c->progress = count;
    c->progress_user = &h;
    ckpi_run_low(save_low, help, &h);
    assert_int_equal(h.written, c->pred->layout->n);
    assert_non_null(late.ws);                                     /* it did help */
    ckpi_late_destroy(&late);
}

/* Keys and deltas of what is coded by helpers too are the same to the last byte. */
static void
help_does_not_show_in_the_file(void **state)
{
    (void)state;
    static const char *const profile[] = {"lossless", "resume"};
    for (size_t p = 0; p < CHECK_COUNT(profile); p++)
        for (unsigned t = 1; t <= 2; t++) {
            sim *m = many();
            chain *plain = chain_new(profile[p], 1, UINT32_MAX), *c = chain_new(profile[p], t, UINT32_MAX);
            plain->staged = c->staged = true;
            for (size_t i = 0; i < 3; i++) {
                chain_save(plain, m, i == 0, false);
                save_helped(c, m);
                assert_int_equal(c->file[i].len, plain->file[i].len);
                assert_memory_equal(c->file[i].data, plain->file[i].data, c->file[i].len);
                sim_train(m);
            }
            chain_free(plain);
            chain_free(c);
            sim_free(m);
        }
}

static void
a_caller_can_stop_it(void **state)
{
    (void)state;
    sim *m = many();
    for (size_t i = 0; i < CHECK_COUNT(threads); i++)
        for (size_t at = 1; at < GROUPS; at += 6) {
            chain *c = chain_new("lossless", threads[i], UINT32_MAX);
            told t = {.caller = pthread_self(), .stop_at = at};
            ckp_error err;
            c->staged = at % 4 == 1;
            c->progress = tell;
            c->progress_user = &t;
            assert_int_equal(chain_save_try(c, m, true, false, &err), CKP_ECANCELLED);
            assert_int_equal(t.calls, at);
            chain_free(c);
        }
    sim_free(m);
}

static ckp_status
fails_from(void *user, size_t g, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t *from = user;
    (void)ws;
    (void)cpu;
    return g >= *from ? ckpi_fail(err, CKP_EIO, "group %zu", g) : CKP_OK;
}

/* Where several groups fail, it is the lowest that is told, whoever fails first. */
static void
the_lowest_failure_is_told(void **state)
{
    (void)state;
    sim *m = many();
    for (size_t i = 0; i < CHECK_COUNT(threads); i++)
        for (size_t from = 0; from < GROUPS; from += 7) {
            chain *c = chain_new("lossless", threads[i], UINT32_MAX);
            char wanted[32];
            ckp_error err;
            c->staged = false;
            c->load = fails_from;
            c->load_user = &from;
            assert_int_equal(chain_save_try(c, m, true, false, &err), CKP_EIO);
            (void)snprintf(wanted, sizeof wanted, "group %zu", from);
            assert_string_equal(err.text, wanted);
            chain_free(c);
        }
    sim_free(m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caller_writes_in_order),
        cmocka_unit_test(help_does_not_show_in_the_file),
        cmocka_unit_test(a_caller_can_stop_it),
        cmocka_unit_test(the_lowest_failure_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
