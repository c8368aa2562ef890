/* SPDX-License-Identifier: Apache-2.0 */
/* What a damaged file still holds: every whole chunk is named, written, and right. */
#define _GNU_SOURCE
#include "help.h"
#include <ckpress/run_file.h>

typedef struct told { size_t n, whole, partly, none; uint64_t have, of; } told;

static void
tell(void *user, const char *tensor, uint64_t have, uint64_t of)
{
    told *t = user;
    assert_non_null(tensor);
    assert_true(have <= of);
    t->n++;
    t->whole += have == of;
    t->partly += have != 0 && have < of;
    t->none += have == 0 && of != 0;
    t->have += have;
    t->of += of;
}

/* A salvaged safetensors file holds the model's bits: by name, or by NAME[first:last]. Returns the elements that it holds. */
static uint64_t
check_file(const char *dir, const char *name, const help_image *want)
{
    ckp_checkpoint *ck = NULL;
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    ckp_error err;
    uint64_t n = 0;
    char in[1024], out[1024];
    (void)snprintf(in, sizeof in, "%s/%s", dir, name);
    (void)snprintf(out, sizeof out, "%s/%s.ckp", dir, name);
    FILE *f = fopen(in, "rb");
    if (f == NULL)
        return 0;
    (void)fclose(f);
    OK_OR_FAIL(ckp_compress(in, out, &o, NULL, &err));
    OK_OR_FAIL(ckp_checkpoint_open_file(&ck, out, NULL, 0, &err));
    help_image *x = help_read(ck);
    for (size_t i = 0; i < x->n; i++) {
        ckp_tensor_info info = {.size = sizeof info};
        OK_OR_FAIL(ckp_checkpoint_tensor(ck, i, &info, &err));
        char *part = strchr(x->name[i], '[');
        const uint64_t first = part != NULL ? strtoull(part + 1, NULL, 10) : 0;
        if (part != NULL)
            *part = '\0';
        size_t k = 0;
        while (k < want->n && strcmp(want->name[k], x->name[i]) != 0)
            k++;
        assert_true(k < want->n);
        const size_t e = info.numel != 0 ? x->len[i] / (size_t)info.numel : 0;
        assert_true((size_t)first * e + x->len[i] <= want->len[k]);
        assert_memory_equal(x->data[i], want->data[k] + (size_t)first * e, x->len[i]);
        n += info.numel;
    }
    help_image_free(x);
    ckp_checkpoint_close(ck);
    return n;
}

#define N_FILES 3                /* a key and two deltas */

typedef struct fixture { char *dir; char *path[N_FILES]; uint8_t *file[N_FILES]; size_t len[N_FILES]; help_image *want[N_FILES]; } fixture;

static fixture
make(ckp_profile profile)
{
    static const uint64_t tall[2] = {1500, 1000}, vec[1] = {300};
    fixture f = {.dir = help_dir()};
    sim *m = sim_new(4);
    ckp_error err;
    (void)sim_add_weight(m, "w", CKP_F32, CKP_F32, CKP_F32, 2, tall);
    (void)sim_add_weight(m, "h", CKP_BF16, CKP_F32, CKP_F32, 1, vec);
    (void)sim_add_weight(m, "s", CKP_F32, CKP_F32, 0, 1, vec);
    (void)sim_add(m, "o", CKP_ROLE_OTHER, SIM_NONE, CKP_I64, 1, vec);
    ckp_run *run = help_open(f.dir, profile, 32, 0);
    for (int i = 0; i < N_FILES; i++) {
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
    for (int i = 0; i < N_FILES; i++) {
        free(f->path[i]);
        free(f->file[i]);
        help_image_free(f->want[i]);
    }
    help_remove(f->dir);
}

static told
salvage(const fixture *f, int which)
{
    told t = {0};
    ckp_error err;
    const char *base[N_FILES];
    const char *out = help_path(f->dir, "out");
    for (int i = 0; i < which; i++)
        base[i] = f->path[which - 1 - i];
    OK_OR_FAIL(ckp_salvage(f->path[which], which != 0 ? base : NULL, (size_t)which, out, true, tell, &t, &err));
    const uint64_t got = check_file(out, "salvaged.safetensors", f->want[which]) + check_file(out, "salvaged-parts.safetensors", f->want[which]);
    assert_int_equal(got, t.have);
    (void)remove(help_path(f->dir, "out/salvaged.safetensors"));
    (void)remove(help_path(f->dir, "out/salvaged-parts.safetensors"));
    (void)remove(help_path(f->dir, "out/salvaged.safetensors.ckp"));
    (void)remove(help_path(f->dir, "out/salvaged-parts.safetensors.ckp"));
    return t;
}

static void
test_cuts(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = make((ckp_profile)p);
        for (int i = 0; i < 2; i++) {
            const told whole = salvage(&f, i);
            assert_int_equal(whole.have, whole.of);
            assert_int_equal(whole.n, 9);
            uint64_t before = 0;
            for (size_t k = 1; k <= 8; k++) {
                const size_t n = k < 8 ? f.len[i] * k / 8 : f.len[i] - 1;
                help_write(f.path[i], f.file[i], n);
                ckp_error err;
                told t = {0};
                if (n < 900) {                           /* a cut table: nothing to go by, but an error */
                    const char *base[1] = {f.path[0]};
                    const ckp_status st = ckp_salvage(f.path[i], i ? base : NULL, (size_t)i, help_path(f.dir, "out"), true, tell, &t, &err);
                    if (st != CKP_OK)
                        continue;
                }
                t = salvage(&f, i);
                assert_true(t.have >= before);
                before = t.have;
            }
            assert_int_equal(before, whole.of);          /* only the trailer was gone */
            help_write(f.path[i], f.file[i], f.len[i]);
        }
        unmake(&f);
    }
}

/* A bad sector in the middle: the chunks on either side of it are had. */
static void
test_hole(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = make((ckp_profile)p);
        for (int i = 0; i < 2; i++)
            for (int k = 2; k < 9; k++) {
                uint8_t *file = malloc(f.len[i]);
                memcpy(file, f.file[i], f.len[i]);
                memset(file + f.len[i] / 10 * (size_t)k, 0x77, 64);
                help_write(f.path[i], file, f.len[i]);
                const told t = salvage(&f, i);
                assert_true(t.have < t.of && t.have > 0);
                help_write(f.path[i], f.file[i], f.len[i]);
                free(file);
            }
        unmake(&f);
    }
}

/* A base that is cut, or has a hole, costs what was predicted from what it lost, at any depth; without its trailer nothing. */
static void
test_damaged_bases(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = make((ckp_profile)p);
        for (int which = 1; which < N_FILES; which++)
            for (int b = 0; b < which; b++) {
                uint64_t before = 0;
                for (size_t k = 4; k <= 8; k += 2) {
                    help_write(f.path[b], f.file[b], k < 8 ? f.len[b] * k / 8 : f.len[b] - 1);
                    const told t = salvage(&f, which);
                    assert_true(t.have >= before && t.have > 0 && (k != 4 || t.have < t.of));
                    before = t.have;
                    if (k == 8)
                        assert_int_equal(t.have, t.of);
                }
                unsigned felt = 0;                       /* not every chunk of a base has something predicted from it */
                for (size_t k = 2; k < 9; k += 2) {
                    uint8_t *file = malloc(f.len[b]);
                    memcpy(file, f.file[b], f.len[b]);
                    memset(file + f.len[b] / 10 * k, 0x77, 64);
                    help_write(f.path[b], file, f.len[b] - 1);
                    const told t = salvage(&f, which);
                    assert_true(t.have > 0);
                    felt += t.have < t.of;
                    free(file);
                }
                assert_true(felt > 0);
                help_write(f.path[b], f.file[b], f.len[b]);
            }
        /* all of them at once */
        for (int b = 0; b < N_FILES; b++)
            help_write(f.path[b], f.file[b], f.len[b] - 1);
        const told t = salvage(&f, N_FILES - 1);
        assert_int_equal(t.have, t.of);
        unmake(&f);
    }
}

/* Chunks of another run's key do not pass for the base's, though it is too damaged to say what it is. */
static void
test_damaged_stranger(void **state)
{
    (void)state;
    fixture f = make(CKP_PROFILE_LOSSLESS);
    fixture g = make(CKP_PROFILE_LOSSLESS);
    ckp_error err;
    told t = {0};
    for (size_t i = 4096; i < g.len[0]; i++)
        g.file[0][i] = (uint8_t)(g.file[0][i] ^ (i % 1024 == 0));      /* most chunks */
    help_write(f.path[0], g.file[0], g.len[0] - 1);
    const char *base[1] = {f.path[0]};
    const ckp_status st = ckp_salvage(f.path[1], base, 1, help_path(f.dir, "out"), true, tell, &t, &err);
    if (st == CKP_OK)
        assert_true(check_file(help_path(f.dir, "out"), "salvaged.safetensors", f.want[1]) <= t.have);
    unmake(&f);
    unmake(&g);
}

static void
test_not_a_file(void **state)
{
    (void)state;
    char *dir = help_dir();
    ckp_error err;
    const char *p = help_path(dir, "x.ckp");
    help_write(p, "nothing of the kind, but longer than a header has to be, and so on and so forth, until the end of it", 100);
    assert_status(ckp_salvage(p, NULL, 0, help_path(dir, "out"), true, NULL, NULL, &err), CKP_EFORMAT);
    assert_true(strstr(err.file, "x.ckp") != NULL);
    assert_status(ckp_salvage(help_path(dir, "no"), NULL, 0, help_path(dir, "out"), true, NULL, NULL, &err), CKP_ENOTFOUND);
    assert_status(ckp_salvage(NULL, NULL, 0, dir, true, NULL, NULL, &err), CKP_EINVAL);
    assert_status(ckp_salvage(p, NULL, 2, dir, true, NULL, NULL, &err), CKP_EINVAL);
    help_remove(dir);
}

/* Dtypes that safetensors does not know are no reason to lose the rest. */
static void
test_odd_dtypes(void **state)
{
    (void)state;
    static const uint64_t vec[1] = {64};
    static const ckp_dtype dts[] = {CKP_C128, CKP_F128, CKP_I4, CKP_C32, CKP_BITS8, CKP_F8E3M4, CKP_C256};
    char *dir = help_dir();
    sim *m = sim_new(4);
    told t = {0};
    ckp_error err;
    (void)sim_add(m, "plain", CKP_ROLE_WEIGHT, SIM_NONE, CKP_F32, 1, vec);
    for (size_t i = 0; i < CHECK_COUNT(dts); i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%zu", i);
        (void)sim_add(m, name, CKP_ROLE_OTHER, SIM_NONE, dts[i], 1, vec);
    }
    ckp_state *s = sim_state(m);
    char path[1024];
    (void)snprintf(path, sizeof path, "%s", help_path(dir, "x.ckp"));
    OK_OR_FAIL(ckp_file_save(path, s, NULL, NULL, true, &err));
    size_t len = 0;
    uint8_t *file = help_file(path, &len);
    help_write(path, file, len - 3);
    OK_OR_FAIL(ckp_salvage(path, NULL, 0, help_path(dir, "out"), true, tell, &t, &err));
    assert_int_equal(t.have, t.of);
    size_t got = 0;
    uint8_t *out = help_file(help_path(dir, "out/salvaged.safetensors"), &got);
    assert_true(got > 64 * 4);
    free(out);
    free(file);
    ckp_state_free(s);
    sim_free(m);
    help_remove(dir);
}

/* Of what one shard of several holds, whole tensors are whole; parts say where they lie in theirs. */
static void
test_parts(void **state)
{
    (void)state;
    static const float data[16] = {1, 2, 3};
    static const uint64_t whole[2] = {6, 4}, range[2] = {1, 9}, box[2] = {3, 4}, first[2] = {3, 0};
    static const char *const has[] = {"\"range[5:14]\"", "\"box[3:6,0:4]\""};
    char *dir = help_dir(), *path = strdup(help_path(dir, "x.ckp"));
    ckp_state *s = NULL;
    ckp_error err;
    size_t len = 0;
    assert_ok(ckp_state_new(&s, NULL));
    for (int i = 0; i < 3; i++) {
        ckp_tensor t = CKP_TENSOR_INIT;
        t.dtype = CKP_F32;
        t.ndim = 2;
        t.data = data + i;
        t.shape = i == 0 ? range : box;
        t.global_shape = i < 2 ? whole : NULL;
        t.flat = i == 0;
        t.flat_first = i == 0 ? 5 : 0;
        t.box_first = i == 1 ? first : NULL;
        assert_ok(ckp_state_add_tensor(s, i == 0 ? "range" : i == 1 ? "box" : "plain", CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    }
    OK_OR_FAIL(ckp_file_save(path, s, NULL, NULL, true, &err));
    OK_OR_FAIL(ckp_salvage(path, NULL, 0, help_path(dir, "out"), true, NULL, NULL, &err));
    char *text = (char *)help_file(help_path(dir, "out/salvaged.safetensors"), &len);
    text[len - 1] = '\0';
    assert_non_null(strstr(text + 8, "\"plain\""));
    assert_null(strstr(text + 8, "range"));
    free(text);
    text = (char *)help_file(help_path(dir, "out/salvaged-parts.safetensors"), &len);
    text[len - 1] = '\0';
    for (size_t i = 0; i < CHECK_COUNT(has); i++)
        if (strstr(text + 8, has[i]) == NULL)
            fail_msg("no %s in %s", has[i], text + 8);
    free(text);
    ckp_state_free(s);
    free(path);
    help_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_hole), cmocka_unit_test(test_damaged_bases), cmocka_unit_test(test_damaged_stranger),
                                       cmocka_unit_test(test_not_a_file),
                                       cmocka_unit_test(test_odd_dtypes), cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
