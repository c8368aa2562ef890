/* SPDX-License-Identifier: Apache-2.0 */
/* Every truncation and every flipped bit of a small delta's file and of its key's: an error that says where, never a crash, no target touched. */
#include "help.h"

typedef struct fixture {
    char *dir;
    char *path[2];               /* key, delta */
    uint8_t *file[2];
    size_t len[2];
    help_image *want[2];         /* of the key, of the delta */
} fixture;

static fixture
make(ckp_profile profile)
{
    static const uint64_t mat[2] = {5, 16}, vec[1] = {9};
    fixture f = {.dir = help_dir()};
    sim *m = sim_new(4);
    ckp_error err;
    (void)sim_add_weight(m, "w", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add(m, "o", CKP_ROLE_OTHER, SIM_NONE, CKP_I32, 1, vec);
    ckp_run *run = help_open(f.dir, profile, 32, 0);
    for (int i = 0; i < 2; i++) {
        sim_train(m);
        help_save(run, m, NULL);
        f.path[i] = help_shard(f.dir, (uint64_t)i + 1);
        f.file[i] = help_file(f.path[i], &f.len[i]);
        f.want[i] = help_read_run(f.dir, CKP_STEP_NEWEST);
    }
    OK_OR_FAIL(ckp_run_close(run, &err));
    sim_free(m);
    return f;
}

static void
unmake(fixture *f)
{
    for (int i = 0; i < 2; i++) {
        free(f->path[i]);
        free(f->file[i]);
        help_image_free(f->want[i]);
    }
    help_remove(f->dir);
}

static bool
is_damage(ckp_status st)
{
    return st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_EFORMAT || st == CKP_EVERSION || st == CKP_EUNSUPPORTED || st == CKP_EBASE ||
           st == CKP_ELIMIT;
}

/* Reads all into marked memory: on failure the marks are still there. */
static ckp_status
read_marked(ckp_checkpoint *ck, const help_image *want, ckp_error *err)
{
    uint8_t mem[8][2048];
    ckp_target t[8];
    const size_t n = ckp_checkpoint_count(ck);
    if (n != want->n)
        return CKP_OK + 1;
    memset(mem, 0x5a, sizeof mem);
    for (size_t i = 0; i < n; i++) {
        ckp_tensor_info info = {.size = sizeof info};
        const ckp_status st = ckp_checkpoint_tensor(ck, i, &info, err);
        if (st != CKP_OK || info.raw_bytes > sizeof mem[0])
            return CKP_OK + 1;
        t[i] = (ckp_target){.index = (uint32_t)i, .dtype = info.dtype, .ndim = info.ndim, .shape = info.shape, .data = mem[i]};
    }
    const ckp_status st = ckp_checkpoint_read(ck, t, n, 1, err);
    for (size_t i = 0; i < n; i++)
        if (st == CKP_OK)
            assert_memory_equal(mem[i], want->data[i], want->len[i]);
        else
            for (size_t k = 0; k < want->len[i]; k++)
                assert_int_equal(mem[i][k], 0x5a);
    return st;
}

/* The delta with its key, one of them spoilt. */
static void
try_files(const fixture *f, const char *what, size_t at)
{
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    const char *base[1] = {f->path[0]};
    ckp_status st = ckp_checkpoint_open_file(&ck, f->path[1], base, 1, &err);
    if (st == CKP_OK)
        st = read_marked(ck, f->want[1], &err);
    ckp_checkpoint_close(ck);
    /* what the delta does not need of its key (m) may be damaged: read_marked has seen that the values are right */
    if (st == CKP_OK)
        st = ckp_verify(f->path[1], base, 1, CKP_VERIFY_DATA, 1, NULL, NULL, &err);
    if (!is_damage(st))
        fail_msg("%s %zu: status %d: %s", what, at, (int)st, st == CKP_OK ? "read as if nothing were wrong" : err.text);
    if (err.file[0] == '\0')
        fail_msg("%s %zu: no file named: %s", what, at, err.text);
}

static void
test_every_cut(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = make((ckp_profile)p);
        for (int i = 0; i < 2; i++) {
            for (size_t n = 0; n < f.len[i]; n++) {
                help_write(f.path[i], f.file[i], n);
                try_files(&f, i == 0 ? "key cut at" : "delta cut at", n);
            }
            help_write(f.path[i], f.file[i], f.len[i]);
        }
        unmake(&f);
    }
}

static void
test_every_bit(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = make((ckp_profile)p);
        for (int i = 0; i < 2; i++) {
            for (size_t b = 0; b < 8 * f.len[i]; b++) {
                f.file[i][b / 8] ^= (uint8_t)(1U << b % 8);
                help_write(f.path[i], f.file[i], f.len[i]);
                try_files(&f, i == 0 ? "bit of the key" : "bit of the delta", b);
                f.file[i][b / 8] ^= (uint8_t)(1U << b % 8);
            }
            help_write(f.path[i], f.file[i], f.len[i]);
        }
        unmake(&f);
    }
}

/* In a run the newest that is whole is found, and the notes say why not a newer one. */
static void
test_fall_back(void **state)
{
    (void)state;
    fixture f = make(CKP_PROFILE_RESUME);
    for (size_t b = 0; b < 8 * f.len[1]; b += 41) {
        ckp_checkpoint *ck = NULL;
        ckp_error err;
        f.file[1][b / 8] ^= (uint8_t)(1U << b % 8);
        help_write(f.path[1], f.file[1], f.len[1]);
        OK_OR_FAIL(ckp_checkpoint_open_run(&ck, f.dir, CKP_STEP_NEWEST, true, &err));
        assert_true(strstr(ckp_checkpoint_notes(ck), "step-00000002") != NULL);
        help_image *x = help_read(ck);
        assert_true(help_same(x, f.want[0]));
        help_image_free(x);
        ckp_checkpoint_close(ck);
        const ckp_status st = ckp_checkpoint_open_run(&ck, f.dir, 2, true, &err);
        assert_true(is_damage(st));
        assert_true(is_damage(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_DATA, 1, NULL, NULL, &err)));
        f.file[1][b / 8] ^= (uint8_t)(1U << b % 8);
    }
    help_write(f.path[1], f.file[1], f.len[1]);
    for (size_t n = 0; n < f.len[0]; n += 29) {          /* without its key nothing can be had */
        ckp_checkpoint *ck = NULL;
        ckp_error err;
        help_write(f.path[0], f.file[0], n);
        assert_status(ckp_checkpoint_open_run(&ck, f.dir, CKP_STEP_NEWEST, true, &err), CKP_ENOTFOUND);
        assert_true(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_STRUCTURE, 1, NULL, NULL, &err) != CKP_OK);
    }
    unmake(&f);
}

/* A run whose newest is damaged goes on from the one before it, and the damage stays where it is. */
static void
test_going_on_past_damage(void **state)
{
    (void)state;
    fixture f = make(CKP_PROFILE_RESUME);
    static const uint64_t mat[2] = {5, 16}, vec[1] = {9};
    sim *m = sim_new(4);
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    (void)sim_add_weight(m, "w", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add(m, "o", CKP_ROLE_OTHER, SIM_NONE, CKP_I32, 1, vec);
    for (int i = 0; i < 3; i++)
        sim_train(m);
    f.file[1][f.len[1] / 2] ^= 1;
    help_write(f.path[1], f.file[1], f.len[1]);
    ckp_run *run = help_open(f.dir, CKP_PROFILE_RESUME, 32, 1);
    OK_OR_FAIL(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err));
    OK_OR_FAIL(ckp_run_adopt(run, ck, &err));
    ckp_checkpoint_close(ck);
    help_save(run, m, NULL);
    OK_OR_FAIL(ckp_run_close(run, &err));
    help_image *x = help_read_run(f.dir, CKP_STEP_NEWEST);
    help_image_free(x);
    OK_OR_FAIL(ckp_checkpoint_open_run(&ck, f.dir, 3, true, &err));
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint_get_info(ck, &info);
    assert_int_equal(info.chain, 1);
    ckp_checkpoint_close(ck);
    sim_free(m);
    unmake(&f);
}

/* Another base than the one that is named: an error before anything is decoded. */
static void
test_wrong_base(void **state)
{
    (void)state;
    fixture f = make(CKP_PROFILE_RESUME), g = make(CKP_PROFILE_LOSSLESS);
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    const char *base[2] = {g.path[0], f.path[1]};
    assert_status(ckp_checkpoint_open_file(&ck, f.path[1], base, 1, &err), CKP_EBASE);
    assert_status(ckp_checkpoint_open_file(&ck, f.path[1], base, 2, &err), CKP_EBASE);
    assert_status(ckp_checkpoint_open_file(&ck, f.path[1], NULL, 0, &err), CKP_EBASE);
    assert_true(strstr(err.text, "content id") != NULL && err.file[0] != '\0');
    base[1] = f.path[0];                                 /* any order, and more than is needed */
    OK_OR_FAIL(ckp_checkpoint_open_file(&ck, f.path[1], base, 2, &err));
    ckp_checkpoint_close(ck);
    unmake(&f);
    unmake(&g);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_every_bit),  cmocka_unit_test(test_fall_back),
        cmocka_unit_test(test_going_on_past_damage), cmocka_unit_test(test_wrong_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
