/* SPDX-License-Identifier: Apache-2.0 */
/* Single files: saved, described, read in ranges, converted, verified, salvaged. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "codec/codec.h"
#include "format/format.h"
#include "model.h"
#include "state/state.h"

static void
save(const char *path, const model *m, ckp_profile p, ckp_checkpoint *base)
{
    ckp_coding c = CKP_CODING_INIT;
    ckp_error e = {0};
    c.profile = p;
    c.threads = 1;
    ckp_state *s = model_state(m);
    const ckp_status st = ckp_file_save(path, s, &c, base, false, &e);
    if (st != CKP_OK)
        print_error("%s\n", e.text);
    assert_ok(st);
    ckp_state_free(s);
}

static void
large(model *m)
{
    *m = (model){.rng = test_rng_new("file"), .step = 3};
    model_add_adam(m, "a", CKP_F32, CKP_F32, (const uint64_t[4]){1300, 900});
    model_add_adam(m, "b", CKP_BF16, CKP_F32, (const uint64_t[4]){60, 70});
    model_add(m, "n", CKP_ROLE_OTHER, NULL, CKP_I64, (const uint64_t[4]){77});
    for (uint64_t i = 0; i < 77; i++)
        ((int64_t *)m->t[m->n - 1].data)[i] = (int64_t)(i * i);
}

/* Any range is what a full read gives, across chunks and in every profile. */
static void
ranges_are_parts_of_the_whole(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_SMALL; p++) {
        const char *path = model_path(state, ckp_profile_name(p));
        ckp_checkpoint *ck = NULL;
        model m, got;

        large(&m);
        model_copy(&got, &m);
        save(path, &m, p, NULL);
        assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, NULL));
        assert_ok(model_read(ck, &got, NULL));
        for (size_t k = 0; k < m.n; k++) {
            const model_tensor *t = &got.t[k];
            const uint32_t index = ckp_checkpoint_find(ck, t->name);
            const size_t width = ckp_dtype_bits(t->dtype) / 8;
            for (int tries = 0; tries < 6; tries++) {
                /* around the border of the chunks, at the ends, anywhere, nothing */
                const uint64_t at = tries == 0 ? 0 : tries == 1 && t->n > 1100000 ? 1048000 : test_below(&m.rng, t->n);
                const uint64_t n = tries == 2 ? 0 : tries == 3 ? t->n - at : 1 + test_below(&m.rng, t->n - at < 2000 ? t->n - at : 2000);
                uint8_t *out = malloc(width * n + 1);
                assert_non_null(out);
                out[width * n] = 0x5A;
                assert_ok(ckp_checkpoint_read_range(ck, index, at, n, out, NULL));
                assert_memory_equal(out, (const uint8_t *)t->data + width * at, width * n);
                assert_int_equal(out[width * n], 0x5A);
                free(out);
            }
            assert_status(ckp_checkpoint_read_range(ck, index, t->n, 1, got.t[k].data, NULL), CKP_EINVAL);
            assert_status(ckp_checkpoint_read_range(ck, index, UINT64_MAX, 2, got.t[k].data, NULL), CKP_EINVAL);
        }
        assert_status(ckp_checkpoint_read_range(ck, 99, 0, 1, got.t[0].data, NULL), CKP_ENOTFOUND);
        ckp_checkpoint_close(ck);
        model_free(&got);
        model_free(&m);
    }
}

static void
deltas_of_files(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        char a[512], b[512], c[512];
        ckp_checkpoint *ck = NULL;
        ckp_error e = {0};
        model m, got;

        (void)snprintf(a, sizeof a, "%s/%d-a.ckp", (const char *)*state, (int)p);
        (void)snprintf(b, sizeof b, "%s/%d-b.ckp", (const char *)*state, (int)p);
        (void)snprintf(c, sizeof c, "%s/%d-c.ckp", (const char *)*state, (int)p);
        model_small(&m, "deltas");
        model_copy(&got, &m);
        save(a, &m, p, NULL);
        model_step(&m);
        assert_ok(ckp_checkpoint_open_file(&ck, a, NULL, 0, NULL));
        save(b, &m, p, ck);
        ckp_checkpoint_close(ck);
        model_step(&m);
        const char *const behind_b[] = {a};
        assert_ok(ckp_checkpoint_open_file(&ck, b, behind_b, 1, NULL));
        save(c, &m, p, ck);
        ckp_checkpoint_close(ck);

        const char *const chain[] = {a, b}, *const wrong[] = {c}, *const part[] = {b};
        assert_ok(ckp_checkpoint_open_file(&ck, c, chain, 2, NULL));     /* in any order */
        assert_ok(model_read(ck, &got, NULL));
        if (p == CKP_PROFILE_LOSSLESS)
            assert_true(model_equal(&m, &got));
        ckp_checkpoint_info i = {.size = sizeof i};
        ckp_checkpoint_get_info(ck, &i);
        assert_true(i.is_delta && i.chain == 2 && i.lossy == (p != CKP_PROFILE_LOSSLESS));
        ckp_checkpoint_close(ck);
        assert_status(ckp_checkpoint_open_file(&ck, c, NULL, 0, &e), CKP_EBASE);
        assert_status(ckp_checkpoint_open_file(&ck, c, part, 1, &e), CKP_EBASE);
        assert_status(ckp_checkpoint_open_file(&ck, b, wrong, 1, &e), CKP_EBASE);
        assert_null(ck);
        assert_ok(ckp_verify(c, chain, 2, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
        model_free(&got);
        model_free(&m);
    }
}

static void
nothing_is_replaced_unasked(void **state)
{
    const char *path = model_path(state, "x.ckp");
    ckp_error e = {0};
    size_t n = 0, again = 0;
    model m;

    model_small(&m, "replace");
    save(path, &m, CKP_PROFILE_LOSSLESS, NULL);
    uint8_t *was = model_load_file(path, &n);
    model_step(&m);
    ckp_state *s = model_state(&m);
    assert_status(ckp_file_save(path, s, NULL, NULL, false, &e), CKP_EEXIST);
    assert_non_null(strstr(e.text, "x.ckp"));
    uint8_t *now = model_load_file(path, &again);
    assert_int_equal(n, again);
    assert_memory_equal(was, now, n);
    free(now);
    assert_ok(ckp_file_save(path, s, NULL, NULL, true, &e));
    now = model_load_file(path, &again);
    assert_true(n != again || memcmp(was, now, n) != 0);
    assert_status(ckp_file_save(model_path(state, "no/such/x.ckp"), s, NULL, NULL, false, &e), CKP_ENOTFOUND);
    assert_status(ckp_file_save(model_path(state, ".."), s, NULL, NULL, false, &e), CKP_EPATH);
    assert_int_equal(model_count_files(*state), 1);
    ckp_state_free(s);
    free(was);
    free(now);
    model_free(&m);
}

/* A base that the new file replaces would be lost, and the new file with it. */
static void
a_base_is_not_written_over(void **state)
{
    const char *base = model_path(state, "base.ckp"), *delta = model_path(state, "delta.ckp"), *link = model_path(state, "link.ckp"),
               *foreign = model_path(state, "x.safetensors");
    const char *const bases[] = {base};
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    model m;

    model_small(&m, "over");
    save(base, &m, CKP_PROFILE_LOSSLESS, NULL);
    model_step(&m);
    ckp_state *s = model_state(&m);
    assert_int_equal(symlink("base.ckp", link), 0);
    assert_ok(ckp_checkpoint_open_file(&ck, base, NULL, 0, &e));
    assert_status(ckp_file_save(base, s, NULL, ck, true, &e), CKP_EINVAL);
    assert_non_null(strstr(e.file, "base.ckp"));
    assert_status(ckp_file_save(link, s, NULL, ck, true, &e), CKP_EINVAL);
    assert_ok(ckp_file_save(delta, s, NULL, ck, true, &e));
    ckp_checkpoint_close(ck);
    o.bases = bases;
    o.n_bases = 1;
    o.replace = true;
    assert_status(ckp_decompress(delta, base, &o, NULL, &e), CKP_EINVAL);
    assert_ok(ckp_decompress(delta, foreign, &o, NULL, &e));
    o.n_bases = 0;
    assert_ok(ckp_compress(foreign, base, &o, NULL, &e));            /* without a base it may be replaced */
    o.n_bases = 1;
    assert_status(ckp_compress(foreign, link, &o, NULL, &e), CKP_EINVAL);
    assert_ok(ckp_verify(base, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &e));
    ckp_state_free(s);
    model_free(&m);
}

/* Stops at the call that its count says. */
static int
stop(void *user, uint64_t done, uint64_t total)
{
    int *left = user;
    assert_true(done <= total);
    return --*left == 0;
}

static void
cancelled_work_leaves_nothing(void **state)
{
    char from[512], st_path[512], out[512];
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    int left = 0;
    model m;

    (void)snprintf(from, sizeof from, "%s/m.ckp", (const char *)*state);
    (void)snprintf(st_path, sizeof st_path, "%s/m.safetensors", (const char *)*state);
    (void)snprintf(out, sizeof out, "%s/out", (const char *)*state);
    large(&m);
    save(from, &m, CKP_PROFILE_LOSSLESS, NULL);
    o.coding.threads = 1;
    assert_ok(ckp_decompress(from, st_path, &o, NULL, NULL));
    o.coding.progress = stop;
    o.coding.progress_user = &left;
    for (int at = 1; at <= 2; at++) {
        ckp_error e = {0};
        left = at;
        assert_status(ckp_compress(st_path, out, &o, NULL, &e), CKP_ECANCELLED);
        left = at;
        assert_status(ckp_decompress(from, out, &o, NULL, &e), CKP_ECANCELLED);
        assert_int_equal(model_count_files(*state), 2);
    }
    left = 0;                    /* never */
    assert_ok(ckp_compress(st_path, out, &o, NULL, NULL));
    model_free(&m);
}

static void
conversion_says_what_it_did(void **state)
{
    char from[512], st_path[512], packed[512];
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    ckp_convert_result r = {.size = sizeof r};
    ckp_error e = {0};
    size_t n = 0, back = 0;
    model m;

    (void)snprintf(from, sizeof from, "%s/m.ckp", (const char *)*state);
    (void)snprintf(st_path, sizeof st_path, "%s/m.safetensors", (const char *)*state);
    (void)snprintf(packed, sizeof packed, "%s/p.ckp", (const char *)*state);
    model_small(&m, "convert");
    save(from, &m, CKP_PROFILE_LOSSLESS, NULL);
    assert_ok(ckp_decompress(from, st_path, NULL, &r, NULL));
    assert_string_equal(r.kind, "safetensors");
    assert_int_equal(r.tensors, m.n);
    uint8_t *a = model_load_file(st_path, &n);
    assert_int_equal(r.out_bytes, n);
    assert_ok(ckp_compress(st_path, packed, NULL, &r, NULL));
    assert_string_equal(r.kind, "safetensors");
    assert_int_equal(r.in_bytes, n);
    o.replace = true;
    assert_ok(ckp_decompress(packed, st_path, &o, NULL, NULL));
    uint8_t *b = model_load_file(st_path, &back);
    assert_int_equal(n, back);
    assert_memory_equal(a, b, n);
    assert_status(ckp_compress(packed, from, &o, NULL, &e), CKP_EFORMAT);
    assert_status(ckp_decompress(st_path, packed, &o, NULL, &e), CKP_EFORMAT);
    o.size = 3;
    assert_status(ckp_decompress(packed, st_path, &o, NULL, &e), CKP_EINVAL);
    assert_status(ckp_compress(NULL, NULL, NULL, NULL, &e), CKP_EINVAL);
    free(a);
    free(b);
    model_free(&m);
}

/* ---- salvage ----------------------------------------------------------------------------------------------------------- */

typedef struct tally { uint64_t whole, part, lost; } tally;

static void
count_salvaged(void *user, const char *tensor, uint64_t have, uint64_t of)
{
    tally *t = user;
    assert_true(tensor[0] != '\0' && have <= of);
    *(have == of ? &t->whole : have != 0 ? &t->part : &t->lost) += 1;
}

/* Whole tensors in a salvaged file are, byte for byte, what the whole file gives. */
static void
check_salvaged(const char *dir, const model *want)
{
    char st_path[600], ckp[600];
    ckp_checkpoint *ck = NULL;
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;

    (void)snprintf(st_path, sizeof st_path, "%s/salvaged.safetensors", dir);
    (void)snprintf(ckp, sizeof ckp, "%s/salvaged.ckp", dir);
    if (access(st_path, F_OK) != 0)
        return;
    o.coding.threads = 1;
    assert_ok(ckp_compress(st_path, ckp, &o, NULL, NULL));
    assert_ok(ckp_checkpoint_open_file(&ck, ckp, NULL, 0, NULL));
    for (size_t i = 0; i < want->n; i++) {
        const uint32_t index = ckp_checkpoint_find(ck, want->t[i].name);
        if (index == UINT32_MAX)
            continue;
        uint8_t *p = malloc(model_bytes(&want->t[i]) + 1);
        assert_non_null(p);
        assert_ok(ckp_checkpoint_read_range(ck, index, 0, want->t[i].n, p, NULL));
        assert_memory_equal(p, want->t[i].data, model_bytes(&want->t[i]));
        free(p);
    }
    ckp_checkpoint_close(ck);
}

static void
salvage_of_cut_files(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        char path[512], cut[512], out[512];
        ckp_checkpoint *ck = NULL;
        uint64_t last = 0;
        size_t n = 0;
        model m, want;

        (void)snprintf(path, sizeof path, "%s/%d.ckp", (const char *)*state, (int)p);
        (void)snprintf(cut, sizeof cut, "%s/%d-cut.ckp", (const char *)*state, (int)p);
        large(&m);
        model_copy(&want, &m);
        save(path, &m, p, NULL);
        assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, NULL));
        assert_ok(model_read(ck, &want, NULL));
        ckp_checkpoint_close(ck);
        uint8_t *bytes = model_load_file(path, &n);
        for (unsigned percent = 10; percent <= 100; percent += 30) {
            tally t = {0};
            ckp_error e = {0};
            (void)snprintf(out, sizeof out, "%s/%d-%u", (const char *)*state, (int)p, percent);
            model_store_file(cut, bytes, n * percent / 100);
            const ckp_status st = ckp_salvage(cut, NULL, 0, out, false, count_salvaged, &t, &e);
            if (st != CKP_OK)
                print_error("%u %%: %s\n", percent, e.text);
            assert_ok(st);
            assert_int_equal(t.whole + t.part + t.lost, m.n);
            assert_true(t.whole >= last);
            last = t.whole;
            check_salvaged(out, &want);
        }
        assert_int_equal(last, m.n);
        assert_status(ckp_salvage(path, NULL, 0, out, false, NULL, NULL, NULL), CKP_EEXIST);
        free(bytes);
        model_free(&want);
        model_free(&m);
    }
}

/* Bits flipped anywhere: never a crash, never a wrong element; the flipped chunk alone is lost. */
static void
salvage_of_flipped_files(void **state)
{
    char path[512], bad[512], out[512];
    size_t n = 0;
    model m;

    (void)snprintf(path, sizeof path, "%s/m.ckp", (const char *)*state);
    (void)snprintf(bad, sizeof bad, "%s/bad.ckp", (const char *)*state);
    (void)snprintf(out, sizeof out, "%s/out", (const char *)*state);
    model_small(&m, "flips");
    save(path, &m, CKP_PROFILE_LOSSLESS, NULL);
    uint8_t *bytes = model_load_file(path, &n);
    for (size_t bit = 3; bit < 8 * n; bit += 8 * (n / 150) + 1) {
        tally t = {0};
        ckp_error e = {0};
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        model_store_file(bad, bytes, n);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        const ckp_status st = ckp_salvage(bad, NULL, 0, out, true, count_salvaged, &t, &e);
        assert_true(st == CKP_OK || st <= CKP_ECORRUPT || st == CKP_EUNSUPPORTED);
        if (st == CKP_OK)
            check_salvaged(out, &m);
        model_remove_tree(out);
    }
    free(bytes);
    model_free(&m);
}

static void
count_finding(void *user, const char *what, const ckp_error *e)
{
    unsigned *n = user;
    assert_true(what[0] != '\0' && e->text[0] != '\0' && e->code != CKP_OK);
    ++*n;
}

static void
verify_goes_as_deep_as_asked(void **state)
{
    const char *path = model_path(state, "m.ckp");
    ckp_error e = {0};
    unsigned found = 0;
    size_t n = 0;
    model m;

    large(&m);
    save(path, &m, CKP_PROFILE_RESUME, NULL);
    uint8_t *bytes = model_load_file(path, &n);
    bytes[n / 2] ^= 1;           /* in a chunk */
    model_store_file(path, bytes, n);
    assert_ok(ckp_verify(path, NULL, 0, CKP_VERIFY_STRUCTURE, 1, count_finding, &found, &e));
    assert_int_equal(found, 0);
    assert_status(ckp_verify(path, NULL, 0, CKP_VERIFY_DATA, 1, count_finding, &found, &e), CKP_ECORRUPT);
    assert_true(found >= 1 && e.file[0] != '\0' && e.offset != CKP_NO_OFFSET);
    assert_status(ckp_verify(path, NULL, 0, CKP_VERIFY_DECODE, 2, NULL, NULL, &e), CKP_ECORRUPT);
    assert_status(ckp_verify(path, NULL, 0, (ckp_verify_level)9, 1, NULL, NULL, &e), CKP_EINVAL);
    assert_status(ckp_verify(model_path(state, "none"), NULL, 0, CKP_VERIFY_DATA, 1, NULL, NULL, &e), CKP_ENOTFOUND);
    free(bytes);
    model_free(&m);
}

/* A file may have its chunks in any order (docs/format.md, section 17). Twelve bytes in three chunks, of which the one that comes last is the middle. */
static void
write_out_of_order(const char *path)
{
    static const uint8_t data[12] = "abcdefghijkl";
    static const uint64_t shape[1] = {12}, first[3] = {0, 8, 4};
    ckp_tensor t = {.size = sizeof t, .dtype = CKP_U8, .ndim = 1, .shape = shape, .data = data};
    ckp_state *s = NULL;
    ckpi_table *table = NULL;
    ckpi_fmt_writer *fw = NULL;
    ckpi_writer *w = NULL;
    ckpi_fmt_sum sum;
    ckpi_buf file = CKPI_BUF_INIT;

    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_add_tensor(s, "x", CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    assert_ok(ckpi_table_from_state(&table, s, NULL));
    assert_ok(ckpi_writer_mem(&w, &file, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, table, NULL, 0, NULL, NULL, 0, NULL));
    for (int i = 0; i < 3; i++) {
        ckpi_piece p = {0, first[i], 4};
        ckpi_chunk c = {.role = CKP_ROLE_OTHER, .codec = CKPI_CODEC_RAW, .dtype = CKP_U8, .piece = &p, .n_pieces = 1, .payload = data + first[i],
                              .payload_len = 4, .decoded_hash = ckpi_hash64(data + first[i], 4)};
        assert_ok(ckpi_fmt_writer_chunk(fw, &c, NULL));
    }
    assert_ok(ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    model_store_file(path, file.data, file.len);
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    ckpi_table_free(table);
    ckp_state_free(s);
    ckpi_buf_free(&file);
}

/* From a file they are sorted; from a pipe they cannot be, and are not written as they come. */
static void
chunks_out_of_order(void **state)
{
    const char *path = model_path(state, "x.ckp"), *out = model_path(state, "x.safetensors");
    const ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    ckp_error e = {0};
    size_t n = 0;

    write_out_of_order(path);
    assert_ok(ckp_decompress(path, out, &o, NULL, &e));
    uint8_t *bytes = model_load_file(out, &n);
    assert_memory_equal(bytes + n - 12, "abcdefghijkl", 12);
    free(bytes);
    assert_int_equal(unlink(out), 0);
    const int in = dup(0), fd = open(path, O_RDONLY);
    assert_true(in >= 0 && fd >= 0 && dup2(fd, 0) == 0);
    const ckp_status st = ckp_decompress("-", out, &o, NULL, &e);
    assert_int_equal(dup2(in, 0), 0);
    close(in);
    close(fd);
    assert_status(st, CKP_EUNSUPPORTED);
    assert_string_equal(e.tensor, "x");
    assert_int_not_equal(access(out, F_OK), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(ranges_are_parts_of_the_whole), T(deltas_of_files), T(nothing_is_replaced_unasked), T(cancelled_work_leaves_nothing),
        T(conversion_says_what_it_did), T(salvage_of_cut_files), T(salvage_of_flipped_files), T(verify_goes_as_deep_as_asked),
        T(chunks_out_of_order), T(a_base_is_not_written_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
