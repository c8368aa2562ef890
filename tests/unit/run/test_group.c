/* SPDX-License-Identifier: Apache-2.0 */
/* Several writers: one checkpoint of all ranks' shards or none, one answer for all. Invariant 13. */
#include "model.h"
#include "ranks.h"
#include <stdio.h>
#include <stdlib.h>

#define WORLD 4u
#define SAVES 5

typedef struct training {
    const char *dir;
    const ckp_objects *objects[RANKS_MAX];   /* NULL: the directory */
    ckp_profile profile;
    unsigned key_every;
    model m[RANKS_MAX];          /* of each rank: tensors of its own */
    ckp_run *run[RANKS_MAX];
    int64_t step;                /* to restore */
    unsigned odd;                /* a rank that does something else */
    unsigned saves;
    char found[RANKS_MAX][256], notes[RANKS_MAX][2048];
    bool key[RANKS_MAX];
    bool equal[RANKS_MAX];
} training;

static void
make_models(training *t, unsigned world)
{
    for (unsigned r = 0; r < world; r++) {
        char name[64];
        const uint64_t mat[4] = {40 + 8 * r, 96}, vec[4] = {33};
        t->m[r] = (model){0};
        (void)snprintf(name, sizeof name, "group %u", r);
        t->m[r].rng = test_rng_new(name);
        (void)snprintf(name, sizeof name, "part%u.weight", r);
        model_add_adam(&t->m[r], name, CKP_F32, CKP_F32, mat);
        (void)snprintf(name, sizeof name, "part%u.bias", r);
        model_add_adam(&t->m[r], name, CKP_F32, CKP_F32, vec);
        (void)model_add(&t->m[r], "rng", CKP_ROLE_OTHER, NULL, CKP_I64, (const uint64_t[4]){1});
        ((int64_t *)t->m[r].t[t->m[r].n - 1].data)[0] = 1000 + (int64_t)r;
        t->m[r].step = 10;
    }
}

static void
free_models(training *t, unsigned world)
{
    for (unsigned r = 0; r < world; r++)
        model_free(&t->m[r]);
}

static ckp_status
open_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    const ckp_group g = ranks_group(r, rank);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = t->profile;
    o.coding.threads = 1;
    o.key_every = t->key_every;
    o.objects = t->objects[rank];
    o.group = &g;
    return ckp_run_open(&t->run[rank], t->dir, &o, &r->err[rank]);
}

static ckp_status
close_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    const ckp_status st = ckp_run_close(t->run[rank], &r->err[rank]);
    t->run[rank] = NULL;
    return st;
}

static ckp_status
save_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.alike = 7;
    const ckp_status st = model_save(t->run[rank], &t->m[rank], &o, &r->err[rank]);
    ckp_save_stats s = {.size = sizeof s};
    ckp_run_stats(t->run[rank], &s);
    t->key[rank] = s.is_key;
    return st;
}

static void
train(training *t, unsigned world)
{
    for (unsigned r = 0; r < world; r++)
        model_step(&t->m[r]);
}

static void
all_ok(const ranks *r)
{
    for (unsigned i = 0; i < r->world; i++)
        if (r->status[i] != CKP_OK)
            print_error("rank %u: %s\n", i, r->err[i].text);
    for (unsigned i = 0; i < r->world; i++)
        assert_ok(r->status[i]);
}

/* The same answer everywhere, and it names the rank. */
static void
all_say(const ranks *r, ckp_status want, const char *text)
{
    for (unsigned i = 0; i < r->world; i++) {
        if (r->status[i] != want || strstr(r->err[i].text, text) == NULL)
            print_error("rank %u: status %d: %s\n", i, (int)r->status[i], r->err[i].text);
        assert_status(r->status[i], want);
        assert_non_null(strstr(r->err[i].text, text));
    }
}

/* Restores into a copy of the rank's model, and compares where it must be bit for bit. */
static ckp_status
restore_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    model got = {0};
    ckp_checkpoint *ck = NULL;
    ckp_status st = ckp_checkpoint_open(&ck, t->run[rank], t->step, &r->err[rank]);
    t->found[rank][0] = t->notes[rank][0] = '\0';
    t->equal[rank] = false;
    if (st != CKP_OK)
        return st;
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint_get_info(ck, &info);
    (void)snprintf(t->found[rank], sizeof t->found[rank], "%s", info.name);
    (void)snprintf(t->notes[rank], sizeof t->notes[rank], "%s", ckp_checkpoint_notes(ck));
    model_copy(&got, &t->m[rank]);
    model_clear(&got);
    st = model_read(ck, &got, &r->err[rank]);
    t->equal[rank] = st == CKP_OK && model_equal(&got, &t->m[rank]);
    if (st == CKP_OK)
        st = ckp_run_adopt(t->run[rank], ck, &r->err[rank]);
    if (st == CKP_OK) {          /* lossy training goes on from what was restored */
        model_free(&t->m[rank]);
        got.step = info.step;
        t->m[rank] = got;
    } else {
        model_free(&got);
    }
    ckp_checkpoint_close(ck);
    return st;
}

static bool
exists(const char *dir, const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (f != NULL)
        fclose(f);
    return f != NULL;
}

static int
last_dir(void *user, const ckp_list_entry *e)
{
    if (strcmp(e->health, "ok") == 0)
        (void)snprintf(user, 256, "%s", e->dir);
    return 0;
}

static int
count_ok(void *user, const ckp_list_entry *e)
{
    *(int *)user += strcmp(e->health, "ok") == 0;
    return 0;
}

static void
one_training(void **state, ckp_profile profile)
{
    static training t;
    static ranks r;
    char dir[256] = "", name[600];
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .profile = profile, .key_every = 4, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    make_models(&t, WORLD);
    ranks_run(&r, open_rank);
    all_ok(&r);
    for (int i = 0; i < SAVES; i++) {
        train(&t, WORLD);
        ranks_run(&r, save_rank);
        all_ok(&r);
        for (unsigned k = 0; k < WORLD; k++)
            assert_true(t.key[k] == t.key[0] && t.key[k] == (i % 4 == 0));
    }
    assert_ok(ckp_run_list(t.dir, last_dir, dir, &err));
    for (unsigned k = 0; k < WORLD; k++) {
        (void)snprintf(name, sizeof name, "%s/shard-%05u-of-%05u.ckp", dir, k, WORLD);
        assert_true(exists(t.dir, name));
    }
    ranks_run(&r, restore_rank);
    all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++) {
        assert_string_equal(t.found[k], dir);
        assert_true(profile != CKP_PROFILE_LOSSLESS || t.equal[k]);
    }
    train(&t, WORLD);
    ranks_run(&r, save_rank);    /* a delta against what was restored */
    all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++)
        assert_false(t.key[k]);
    ranks_run(&r, close_rank);
    all_ok(&r);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    int n = 0;
    assert_ok(ckp_run_list(t.dir, count_ok, &n, &err));
    assert_int_equal(n, SAVES + 1);
    free_models(&t, WORLD);
    ranks_free(&r);
}

static void
test_lossless(void **state)
{
    one_training(state, CKP_PROFILE_LOSSLESS);
}

static void
test_resume(void **state)
{
    one_training(state, CKP_PROFILE_RESUME);
}

/* Four ranks have saved; one process, and two ranks, read it all. */
static void
test_other_worlds(void **state)
{
    static training t, two;
    static ranks r, r2;
    ckp_error err = {0};
    ckp_checkpoint *ck = NULL;
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    make_models(&t, WORLD);
    ranks_run(&r, open_rank);
    for (int i = 0; i < 3; i++) {
        train(&t, WORLD);
        ranks_run(&r, save_rank);
        all_ok(&r);
    }
    ranks_run(&r, close_rank);
    all_ok(&r);

    assert_ok(ckp_checkpoint_open_run(&ck, t.dir, CKP_STEP_NEWEST, true, &err));
    assert_int_equal(ckp_checkpoint_shards(ck), WORLD);
    for (unsigned k = 0; k < WORLD; k++) {
        model got = {0};
        model_copy(&got, &t.m[k]);
        model_clear(&got);
        if (k != 0)
            (void)snprintf(got.t[got.n - 1].name, sizeof got.t[0].name, "shard-%05u/rng", k);
        assert_ok(model_read(ck, &got, &err));
        assert_true(model_equal(&got, &t.m[k]));
        model_free(&got);
    }
    ckp_checkpoint_close(ck);

    two = (training){.dir = t.dir, .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r2, 2, &two);
    for (unsigned k = 0; k < 2; k++)
        model_copy(&two.m[k], &t.m[k]);
    ranks_run(&r2, open_rank);
    all_ok(&r2);
    ranks_run(&r2, restore_rank);
    all_ok(&r2);
    for (unsigned k = 0; k < 2; k++)
        assert_true(two.equal[k]);
    train(&two, 2);
    ranks_run(&r2, save_rank);   /* no shard of four is a base of one of two */
    all_ok(&r2);
    assert_true(two.key[0] && two.key[1]);
    ranks_run(&r2, close_rank);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    free_models(&two, 2);
    free_models(&t, WORLD);
    ranks_free(&r2);
    ranks_free(&r);
}

/* ---- failures of one ---- */

static ckp_status
save_or_refuse(ranks *r, unsigned rank)
{
    training *t = r->user;
    if (rank != t->odd)
        return save_rank(r, rank);
    const ckp_status st = ckp_run_refuse(t->run[rank], t->m[rank].step, CKP_ENOSPC, "nothing fits here", true, &r->err[rank]);
    if (st != CKP_OK)
        return st;
    return ckp_objects_fail(&r->err[rank], CKP_ENOSPC, "rank 2: nothing fits here");
}

static ckp_status
save_bad(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.quality = rank == t->odd ? 1e9 : 0.0;
    o.alike = 7;
    const ckp_status st = model_save(t->run[rank], &t->m[rank], &o, &r->err[rank]);
    if (rank == t->odd && strstr(r->err[rank].text, "quality") != NULL)
        (void)ckp_objects_fail(&r->err[rank], st, "rank 2: of its own, without its number");
    return st;
}

static ckp_status
save_another_step(ranks *r, unsigned rank)
{
    training *t = r->user;
    t->m[rank].step += rank == t->odd;
    const ckp_status st = save_rank(r, rank);
    t->m[rank].step -= rank == t->odd;
    return st;
}

static ckp_status
save_unlike(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.alike = 7 + (rank == t->odd);
    return model_save(t->run[rank], &t->m[rank], &o, &r->err[rank]);
}

static void
test_one_fails(void **state)
{
    static training t;
    static ranks r;
    char before[256] = "", after[256] = "";
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .odd = 2, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    make_models(&t, WORLD);
    ranks_run(&r, open_rank);
    all_ok(&r);
    const rank_fn fails[] = {save_or_refuse, save_bad, save_another_step, save_unlike};
    const ckp_status want[] = {CKP_ENOSPC, CKP_EINVAL, CKP_EINVAL, CKP_EINVAL};
    const char *text[] = {"rank 2: nothing fits", "rank 2: ", "rank 2 saves at step", "rank 2 has other options, or other tensors"};
    for (size_t i = 0; i < CHECK_COUNT(fails); i++) {
        train(&t, WORLD);
        ranks_run(&r, save_rank);
        all_ok(&r);
        assert_ok(ckp_run_list(t.dir, last_dir, before, &err));
        train(&t, WORLD);
        const size_t files = model_count_files(t.dir);
        ranks_run(&r, fails[i]);
        all_say(&r, want[i], text[i]);
        assert_ok(ckp_run_list(t.dir, last_dir, after, &err));
        assert_string_equal(before, after);
        assert_int_equal(model_count_files(t.dir), files);         /* nothing stays of it */
        train(&t, WORLD);
        ranks_run(&r, save_rank);
        all_ok(&r);
        for (unsigned k = 0; k < WORLD; k++)
            assert_true(t.key[k]);
    }
    ranks_run(&r, close_rank);
    all_ok(&r);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    free_models(&t, WORLD);
    ranks_free(&r);
}

/* A failure that is told by the next call: that call saves all the same, so that all ranks talk of the same save. */
static ckp_status
save_in_background(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_state *s = model_state(&t->m[rank]);
    bool taken = false;
    ckp_status st = rank == t->odd && t->saves == 1 ? ckp_run_refuse(t->run[rank], t->m[rank].step, CKP_ENOSPC, "full", false, &r->err[rank])
                                                    : ckp_run_save(t->run[rank], t->m[rank].step, s, NULL, &taken, &r->err[rank]);
    ckp_state_free(s);
    t->equal[rank] = taken;
    if (t->saves == 1 && rank == 0)          /* one waits, and hears of it there; the others at their next save */
        st = ckp_run_wait(t->run[rank], &r->err[rank]);
    return st;
}

static void
test_told_later(void **state)
{
    static training t;
    static ranks r;
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .odd = 3, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    make_models(&t, WORLD);
    ranks_run(&r, open_rank);
    for (t.saves = 0; t.saves < 4; t.saves++) {
        train(&t, WORLD);
        ranks_run(&r, save_in_background);
        for (unsigned k = 0; k < WORLD; k++) {
            const bool told = t.saves == 1 ? k == 0 : t.saves == 2 && k != 0 && k != 3;
            assert_status(r.status[k], told ? CKP_ENOSPC : CKP_OK);
            if (told)
                assert_non_null(strstr(r.err[k].text, "rank 3: full"));
            assert_true(t.equal[k] || (t.saves == 1 && k == 3));
        }
    }
    ranks_run(&r, close_rank);
    all_ok(&r);
    int n = 0;
    assert_ok(ckp_run_list(t.dir, count_ok, &n, &err));
    assert_int_equal(n, 3);
    free_models(&t, WORLD);
    ranks_free(&r);
}

/* ---- a rank is gone ---- */

static ckp_status
save_or_die(ranks *r, unsigned rank)
{
    training *t = r->user;
    if (rank == t->odd) {
        ranks_die(r, rank);
        return CKP_EIO;
    }
    return save_rank(r, rank);
}

static void
test_one_dies(void **state)
{
    for (unsigned odd = 0; odd < WORLD; odd += 3) {
        static training t;
        static ranks r;
        char name[16];
        ckp_error err = {0};
        (void)snprintf(name, sizeof name, "run%u", odd);
        t = (training){.dir = model_path(state, name), .key_every = 8, .odd = odd, .step = CKP_STEP_NEWEST};
        ranks_init(&r, WORLD, &t);
        make_models(&t, WORLD);
        ranks_run(&r, open_rank);
        train(&t, WORLD);
        ranks_run(&r, save_rank);
        all_ok(&r);
        for (int i = 0; i < 2; i++) {        /* and for good */
            ranks_run(&r, save_or_die);
            for (unsigned k = 0; k < WORLD; k++) {
                assert_status(r.status[k], CKP_EIO);
                assert_true(k == odd || strstr(r.err[k].text, "a rank has died") != NULL);
            }
        }
        ranks_run(&r, close_rank);
        ranks_free(&r);
        ranks_init(&r, WORLD, &t);
        ranks_run(&r, open_rank);
        all_ok(&r);
        ranks_run(&r, restore_rank);
        all_ok(&r);
        for (unsigned k = 0; k < WORLD; k++)
            assert_true(t.equal[k]);
        ranks_run(&r, save_rank);
        all_ok(&r);
        ranks_run(&r, close_rank);
        all_ok(&r);
        assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        free_models(&t, WORLD);
        ranks_free(&r);
    }
}

/* ---- every request of every rank fails ---- */

typedef struct stores { bucket *b; gate g[RANKS_MAX]; ckp_objects o[RANKS_MAX]; } stores;

static void
faults_of(unsigned rank, ckp_status answer, bool lasting)
{
    static training t;
    static ranks r;
    static stores s;
    ckp_error err = {0};
    unsigned long at = 1, failed = 0;
    ckp_checkpoint *ck = NULL;

    s.b = bucket_new();
    t = (training){.dir = "bucket/run", .key_every = 8, .step = CKP_STEP_NEWEST};
    for (unsigned k = 0; k < WORLD; k++) {
        gate_init(&s.g[k], s.b);
        s.o[k] = gate_table(&s.g[k]);
        t.objects[k] = &s.o[k];
    }
    ranks_init(&r, WORLD, &t);
    make_models(&t, WORLD);
    ranks_run(&r, open_rank);
    all_ok(&r);
    for (bool fired = true; fired && at < 200; at++) {
        train(&t, WORLD);
        ranks_run(&r, save_rank);
        all_ok(&r);
        train(&t, WORLD);
        gate_arm(&s.g[rank], at, lasting, answer);
        ranks_run(&r, save_rank);
        fired = s.g[rank].fired != 0;
        gate_arm(&s.g[rank], 0, false, CKP_OK);
        for (unsigned k = 1; k < WORLD; k++) {
            if (r.status[k] != r.status[0] || strcmp(r.err[k].text, r.err[0].text) != 0)
                print_error("fault %lu: rank %u: %d %s; rank 0: %d %s\n", at, k, (int)r.status[k], r.err[k].text, (int)r.status[0], r.err[0].text);
            assert_status(r.status[k], r.status[0]);
            assert_true(r.status[0] == CKP_OK || strcmp(r.err[k].text, r.err[0].text) == 0);
        }
        if (r.status[0] != CKP_OK) {
            char name[16];
            failed++;
            assert_true(fired);
            (void)snprintf(name, sizeof name, "rank %u: ", rank);
            if (strstr(r.err[0].text, name) == NULL)
                print_error("fault %lu: %s\n", at, r.err[0].text);
            assert_non_null(strstr(r.err[0].text, name));
        }
        const bool had_failed = r.status[0] != CKP_OK;
        assert_ok(ckp_checkpoint_open_run_in(&ck, &s.o[0], t.dir, NULL, CKP_STEP_NEWEST, true, &err));
        ckp_checkpoint_close(ck);
        ranks_run(&r, save_rank);
        all_ok(&r);
        assert_true(t.key[0] || !had_failed);
    }
    assert_true(failed >= 3 && at < 200);
    ranks_run(&r, close_rank);
    free_models(&t, WORLD);
    ranks_free(&r);
    bucket_free(s.b);
}

static void
test_every_request_fails(void **state)
{
    (void)state;
    for (unsigned rank = 0; rank < WORLD; rank += 3)
        for (int lasting = 0; lasting < 2; lasting++)
            faults_of(rank, lasting ? CKP_ENOSPC : CKP_EACCESS, lasting != 0);
}

/* ---- restores that differ ---- */

static void
test_fall_back_together(void **state)
{
    static training t;
    static ranks r;
    char newest[256] = "", name[700];
    ckp_error err = {0};
    static char other[512];
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    make_models(&t, WORLD);
    ranks_run(&r, open_rank);
    all_ok(&r);
    model was[RANKS_MAX] = {0};
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            for (unsigned k = 0; k < WORLD; k++)
                model_copy(&was[k], &t.m[k]);
        train(&t, WORLD);
        if (i < 2)
            for (unsigned k = 0; k < WORLD; k++)
                model_free(&was[k]);
        ranks_run(&r, save_rank);
        all_ok(&r);
    }
    ranks_run(&r, close_rank);
    assert_ok(ckp_run_list(t.dir, last_dir, newest, &err));
    /* Damage inside of one shard: only the rank that reads it sees it. */
    size_t n = 0;
    (void)snprintf(name, sizeof name, "%s/%s/shard-00002-of-00004.ckp", t.dir, newest);
    uint8_t *p = model_load_file(name, &n);
    p[n / 2] ^= 1;
    model_store_file(name, p, n);
    free(p);
    ranks_run(&r, open_rank);
    all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++) {
        model_free(&t.m[k]);
        t.m[k] = was[k];
    }
    ranks_run(&r, restore_rank);
    all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++) {
        assert_string_equal(t.found[k], t.found[0]);
        assert_string_not_equal(t.found[k], newest);
        assert_true(t.equal[k]);
        assert_non_null(strstr(t.notes[k], newest));
        assert_true(k == 2 || strstr(t.notes[k], "rank 2 cannot restore it") != NULL);
    }
    ranks_run(&r, save_rank);
    all_ok(&r);
    ranks_run(&r, close_rank);
    all_ok(&r);
    (void)other;
    free_models(&t, WORLD);
    ranks_free(&r);
}

/* One of many shards is missing: no reader takes that checkpoint. */
static void
test_missing_shard(void **state)
{
    static training t;
    static ranks r;
    char newest[256] = "", name[700];
    ckp_error err = {0};
    ckp_checkpoint *ck = NULL;
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    make_models(&t, WORLD);
    ranks_run(&r, open_rank);
    for (int i = 0; i < 2; i++) {
        train(&t, WORLD);
        ranks_run(&r, save_rank);
        all_ok(&r);
    }
    ranks_run(&r, close_rank);
    assert_ok(ckp_run_list(t.dir, last_dir, newest, &err));
    (void)snprintf(name, sizeof name, "%s/%s/shard-00001-of-00004.ckp", t.dir, newest);
    assert_int_equal(remove(name), 0);
    assert_ok(ckp_checkpoint_open_run(&ck, t.dir, CKP_STEP_NEWEST, true, &err));
    assert_non_null(strstr(ckp_checkpoint_notes(ck), "shard-00001-of-00004.ckp"));
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint_get_info(ck, &info);
    assert_string_not_equal(info.name, newest);
    ckp_checkpoint_close(ck);
    assert_true(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_STRUCTURE, 1, NULL, NULL, &err) != CKP_OK);
    ranks_run(&r, open_rank);
    all_ok(&r);
    ranks_run(&r, restore_rank);
    all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++)
        assert_string_not_equal(t.found[k], newest);
    ranks_run(&r, close_rank);
    free_models(&t, WORLD);
    ranks_free(&r);
}

/* ---- opening ---- */

static ckp_status
open_odd(ranks *r, unsigned rank)
{
    training *t = r->user;
    const ckp_group g = ranks_group(r, rank);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.key_every = t->saves == 0 && rank == t->odd ? 3 : 8;
    o.busy = t->saves == 1 && rank == t->odd ? CKP_BUSY_SKIP : CKP_BUSY_WAIT;
    o.group = &g;
    return ckp_run_open(&t->run[rank], t->dir, &o, &r->err[rank]);
}

static void
test_opening(void **state)
{
    static training t;
    static ranks r;
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .odd = 1};
    ranks_init(&r, WORLD, &t);
    ranks_run(&r, open_odd);
    all_say(&r, CKP_EINVAL, "rank 1 has other options");
    t.saves = 1;
    ranks_run(&r, open_odd);
    all_say(&r, CKP_EINVAL, "rank 1: CKP_BUSY_SKIP in a group");
    ckp_run *alone = model_run(t.dir, (ckp_run_options)CKP_RUN_OPTIONS_INIT);
    ranks_run(&r, open_rank);
    all_say(&r, CKP_EBUSY, "rank 0: ");
    assert_ok(ckp_run_close(alone, &err));
    ranks_run(&r, open_rank);
    all_ok(&r);
    ranks_run(&r, close_rank);
    all_ok(&r);
    ckp_group g = ranks_group(&r, 0);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.group = &g;
    g.rank = g.world;
    assert_status(ckp_run_open(&alone, t.dir, &o, &err), CKP_EINVAL);
    ranks_free(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lossless, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_resume, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_other_worlds, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_one_fails, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_told_later, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_one_dies, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_fall_back_together, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_missing_shard, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_opening, model_setup, model_teardown),
        cmocka_unit_test(test_every_request_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
