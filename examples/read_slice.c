/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads some rows of one tensor out of a large file: only the chunks that hold them are read and decoded.
 *
 *     cc -std=c11 read_slice.c -o read_slice $(pkg-config --cflags --libs ckpress) && ./read_slice
 */
#include <ckpress/ckpress.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 30000, COLUMNS = 128 };

/* The state comes from a callback, as for memory that the CPU cannot read in place: no copy of the whole table exists anywhere. */
static ckp_status
pull(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    float *out = dst;
    (void)user;
    (void)err;
    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)((first + i) % 1000) * 0.001f;
    return CKP_OK;
}

static ckp_status
write_table(const char *path, ckp_error *err)
{
    const uint64_t shape[2] = {ROWS, COLUMNS};
    ckp_tensor t = CKP_TENSOR_INIT;
    ckp_state *state = NULL;

    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = shape;
    t.pull = pull;
    ckp_status st = ckp_state_new(&state, err);
    if (st == CKP_OK)
        st = ckp_state_add_tensor(state, "wte.weight", CKP_ROLE_WEIGHT, NULL, &t, NULL, err);
    if (st == CKP_OK)
        st = ckp_file_save(path, state, NULL, NULL, true, err);    /* NULL: lossless */
    ckp_state_free(state);
    return st;
}

static ckp_status
read_rows(const char *path, uint64_t first, uint64_t n, float *dst, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;
    ckp_status st = ckp_checkpoint_open_file(&ck, path, NULL, 0, err);
    if (st == CKP_OK)
        st = ckp_checkpoint_read_range(ck, ckp_checkpoint_find(ck, "wte.weight"), first * COLUMNS, n * COLUMNS, dst, err);
    ckp_checkpoint_close(ck);
    return st;
}

int
main(void)
{
    static float rows[10][COLUMNS];
    ckp_error err;

    ckp_status st = write_table("table.ckp", &err);
    if (st == CKP_OK)
        st = read_rows("table.ckp", 20000, 10, &rows[0][0], &err);
    if (st != CKP_OK) {
        fprintf(stderr, "%s\n", err.text);
        return EXIT_FAILURE;
    }
    printf("row 20000 begins %.3f %.3f %.3f\n", (double)rows[0][0], (double)rows[0][1], (double)rows[0][2]);
    return rows[0][0] == 0.0f ? EXIT_SUCCESS : EXIT_FAILURE;
}
