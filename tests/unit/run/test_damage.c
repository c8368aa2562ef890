/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of a key and a delta whose newest shard or manifest is cut at every byte, or has any bit flipped: opening falls back to the key and
 * says why, or fails with a typed error; nothing crashes; what was restored is always one of the two states; a restore that fails leaves the
 * live tensors' bits as they were.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "model.h"

typedef struct bed {
    char dir[256], shard[512], manifest[512];
    model key, newest, live;         /* as a sound run restores them; what is restored into */
    uint8_t *bytes;
    size_t n;
    unsigned whole, fell_back;
} bed;

static void
tiny(model *m)
{
    *m = (model){.rng = test_rng_new("damage"), .step = 1};
    model_add_adam(m, "a", CKP_F32, CKP_F32, (const uint64_t[4]){6, 20});
    model_add(m, "count", CKP_ROLE_OTHER, NULL, CKP_I64, (const uint64_t[4]){2});
}

static void
bed_make(bed *b, void **state, ckp_profile p)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;

    *b = (bed){0};
    (void)snprintf(b->dir, sizeof b->dir, "%s/run-%d", (const char *)*state, (int)p);
    o.coding.profile = p;
    tiny(&b->newest);
    ckp_run *run = model_run(b->dir, o);
    assert_ok(model_save(run, &b->newest, NULL, NULL));
    model_step(&b->newest);
    assert_ok(model_save(run, &b->newest, NULL, NULL));
    assert_ok(ckp_run_close(run, NULL));
    model_copy(&b->key, &b->newest);
    model_copy(&b->live, &b->newest);
    model_restore(b->dir, 1, &b->key);
    model_restore(b->dir, 2, &b->newest);
    (void)snprintf(b->shard, sizeof b->shard, "%s", model_shard(b->dir, 2));
    (void)snprintf(b->manifest, sizeof b->manifest, "%.*s/manifest.json", (int)(strrchr(b->shard, '/') - b->shard), b->shard);
}

static void
bed_free(bed *b)
{
    model_free(&b->key);
    model_free(&b->newest);
    model_free(&b->live);
    free(b->bytes);
}

/* After damage: what a training process would do. */
static void
restart(bed *b, bool must_fall_back)
{
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    model_clear(&b->live);
    assert_ok(ckp_checkpoint_open_run(&ck, b->dir, CKP_STEP_NEWEST, true, &e));
    assert_ok(model_read(ck, &b->live, &e));
    if (model_equal(&b->live, &b->newest)) {
        assert_false(must_fall_back);
        b->whole++;
    } else {
        assert_true(model_equal(&b->live, &b->key));
        assert_non_null(strstr(ckp_checkpoint_notes(ck), "step-00000002-"));
        b->fell_back++;
    }
    ckp_checkpoint_close(ck);
}

/* The damaged one by its step, without the check of all payloads at open: reading must find out, before it writes. */
static void
restore_damaged(bed *b)
{
    ckp_checkpoint *ck = NULL;
    model before;
    ckp_error e = {0};

    ckp_status st = ckp_checkpoint_open_run(&ck, b->dir, 2, false, &e);
    model_clear(&b->live);
    model_copy(&before, &b->live);
    if (st == CKP_OK)
        st = model_read(ck, &b->live, &e);
    ckp_checkpoint_close(ck);
    if (st == CKP_OK) {
        assert_true(model_equal(&b->live, &b->newest));
    } else {
        assert_true(st <= CKP_EIO || st == CKP_EUNSUPPORTED || st == CKP_ELIMIT);
        assert_true(e.code == st && e.text[0] != '\0');
        assert_true(model_equal(&b->live, &before));
    }
    model_free(&before);
}

static void
cut_at_every_byte(bed *b, const char *path)
{
    b->bytes = model_load_file(path, &b->n);
    for (size_t n = 0; n < b->n; n++) {
        model_store_file(path, b->bytes, n);
        restart(b, true);
        restore_damaged(b);
    }
    model_store_file(path, b->bytes, b->n);
    free(b->bytes);
    b->bytes = NULL;
    restart(b, false);
}

static void
flip_every_bit(bed *b, const char *path, unsigned stride)
{
    b->bytes = model_load_file(path, &b->n);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    for (size_t bit = 0; bit < 8 * b->n; bit += stride) {
        const uint8_t bad = (uint8_t)(b->bytes[bit / 8] ^ 1u << bit % 8);
        assert_int_equal(pwrite(fileno(f), &bad, 1, (off_t)(bit / 8)), 1);
        restart(b, false);
        restore_damaged(b);
        assert_int_equal(pwrite(fileno(f), &b->bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    (void)fclose(f);
    free(b->bytes);
    b->bytes = NULL;
}

static void
sweep(void **state, ckp_profile p)
{
    /* CKP_FAIL_EVERY=1 (make test-full): every bit; else every fifth, so each place of a byte has its turn */
    const unsigned stride = getenv("CKP_FAIL_EVERY") != NULL ? 1 : 5;
    bed b;

    bed_make(&b, state, p);
    cut_at_every_byte(&b, b.shard);
    cut_at_every_byte(&b, b.manifest);
    b.whole = 0;
    flip_every_bit(&b, b.shard, stride);
    assert_int_equal(b.whole, 0);    /* every bit of a shard is covered by a hash */
    flip_every_bit(&b, b.manifest, stride);
    assert_true(b.fell_back > 1000);
    bed_free(&b);
}

static void
lossless_run(void **state)
{
    sweep(state, CKP_PROFILE_LOSSLESS);
}

static void
resume_run(void **state)
{
    sweep(state, CKP_PROFILE_RESUME);
}

/* When the key is hurt, nothing can be restored: an error, and the live tensors stay. */
static void
the_key_is_hurt(void **state)
{
    bed b;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    bed_make(&b, state, CKP_PROFILE_RESUME);
    const char *key = model_shard(b.dir, 1);
    b.bytes = model_load_file(key, &b.n);
    b.bytes[b.n / 2] ^= 4;
    model_store_file(key, b.bytes, b.n);
    assert_status(ckp_checkpoint_open_run(&ck, b.dir, CKP_STEP_NEWEST, true, &e), CKP_ENOTFOUND);
    assert_null(ck);
    assert_status(ckp_checkpoint_open_run(&ck, b.dir, 2, true, &e), CKP_ECORRUPT);
    restore_damaged(&b);
    bed_free(&b);
}

/* Reading into the wrong tensors is refused before anything is written. */
static void
mismatched_targets(void **state)
{
    bed b;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    float small[120];
    const uint64_t other[2] = {20, 6};

    bed_make(&b, state, CKP_PROFILE_LOSSLESS);
    assert_ok(ckp_checkpoint_open_run(&ck, b.dir, CKP_STEP_NEWEST, true, NULL));
    const uint32_t a = ckp_checkpoint_find(ck, "a"), m = ckp_checkpoint_find(ck, "a/m");
    memset(small, 0xA5, sizeof small);
    ckp_target t[2] = {{m, CKP_F32, 2, b.newest.t[0].shape, NULL, small}, {a, CKP_F32, 2, other, NULL, small}};
    assert_status(ckp_checkpoint_read(ck, t, 2, 1, &e), CKP_EMISMATCH);
    assert_string_equal(e.tensor, "a");
    t[1] = (ckp_target){a, CKP_F64, 2, b.newest.t[0].shape, NULL, small};
    assert_status(ckp_checkpoint_read(ck, t, 2, 1, &e), CKP_EMISMATCH);
    t[1] = (ckp_target){a, CKP_F32, 2, b.newest.t[0].shape, NULL, NULL};
    assert_status(ckp_checkpoint_read(ck, t, 2, 1, &e), CKP_EINVAL);
    t[1] = (ckp_target){99, CKP_F32, 2, b.newest.t[0].shape, NULL, small};
    assert_status(ckp_checkpoint_read(ck, t, 2, 1, &e), CKP_ENOTFOUND);
    for (size_t i = 0; i < sizeof small; i++)
        assert_int_equal(((const uint8_t *)small)[i], 0xA5);
    ckp_checkpoint_close(ck);
    bed_free(&b);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {T(lossless_run), T(resume_run), T(the_key_is_hurt), T(mismatched_targets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
