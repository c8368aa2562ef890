/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks that no encoder of ours wrote: the input is a list of changes to the chunks of a real file, of any profile, key or delta. All hashes
 * are right again afterwards, so that the changes reach lineages, units, parameters, codecs and quantizers.
 *
 *   u8 file (bits 0 and 1: profile; 2: delta; 3: without its end, to be salvaged; 4: moments without v; 5: weights by DynaQuant, where the
 *   profile is lossy), then changes:
 *   u8 what, u8 chunk, then by `what`: see change()
 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/cursor.h"
#include "engine/decode.h"
#include "run/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS = 40, COLS = 24, SIDE = 64, MOST = SIDE * SIDE, VEC = 150, MAX_CHUNKS = 24, MAX_PIECES = 8 };

/* ---- real files ---- */

typedef struct real_files { ckpi_buf file[2]; } real_files;      /* key, delta */

static void
add(ckp_state *s, const char *name, ckp_role role, const char *owner, ckp_dtype dt, const uint64_t *matrix, const void *data)
{
    static const uint64_t vec[1] = {VEC};
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = dt;
    t.ndim = matrix != NULL ? 2 : 1;
    t.shape = matrix != NULL ? matrix : vec;
    t.data = data;
    if (ckp_state_add_tensor(s, name, role, owner, &t, NULL, NULL) != CKP_OK)
        abort();
}

static float memory[7][MOST];

/* wide: large enough for codebooks. */
static ckp_state *
state_of(unsigned step, bool with_v, bool wide)
{
    static const uint64_t small[2] = {ROWS, COLS}, large[2] = {SIDE, SIDE};
    const uint64_t *mat = wide ? large : small;
    ckp_state *s = NULL;
    uint32_t x = 12345 + step;
    for (size_t k = 0; k < 7; k++)
        for (size_t i = 0; i < mat[0] * mat[1]; i++) {
            x = x * 1664525U + 1013904223U;
            const float u = (float)(x >> 8) / 16777216.0F - 0.5F;
            memory[k][i] = k < 2 ? memory[k][i] + (step == 0 ? u : 0.01F * u) : k < 4 ? 0.01F * u : 1e-4F * u * u * (float)(1 + i / mat[1]);
        }
    memory[0][3] = memory[2][4] = memory[4][5] = 1e30F * 1e30F;
    if (ckp_state_new(&s, NULL) != CKP_OK)
        abort();
    add(s, "a", CKP_ROLE_WEIGHT, NULL, CKP_F32, mat, memory[0]);
    add(s, "b", CKP_ROLE_WEIGHT, NULL, CKP_BF16, NULL, memory[1]);
    add(s, "c", CKP_ROLE_WEIGHT, NULL, CKP_F32, NULL, memory[1]);
    add(s, "a/m", with_v ? CKP_ROLE_M : CKP_ROLE_MOMENTUM, "a", CKP_F32, mat, memory[2]);
    add(s, "b/m", with_v ? CKP_ROLE_M : CKP_ROLE_MOMENTUM, "b", CKP_BF16, NULL, memory[3]);
    add(s, "c/m", with_v ? CKP_ROLE_M : CKP_ROLE_MOMENTUM, "c", CKP_F32, NULL, memory[3]);
    if (with_v) {
        add(s, "a/v", CKP_ROLE_V, "a", CKP_F32, mat, memory[4]);
        add(s, "b/v", CKP_ROLE_V, "b", CKP_F16, NULL, memory[5]);
        add(s, "c/v", CKP_ROLE_V, "c", CKP_F32, NULL, memory[6]);
    }
    add(s, "o", CKP_ROLE_OTHER, NULL, CKP_I64, NULL, memory[6]);
    return s;
}

static ckpi_fmt_file *
open_bytes(const ckpi_buf *b)
{
    ckpi_reader *r = NULL;
    ckpi_fmt_file *f = NULL;
    if (ckpi_reader_mem(&r, b->data, b->len, "fuzz", NULL) != CKP_OK || ckpi_fmt_open(&f, r, NULL) != CKP_OK)
        return NULL;
    return f;
}

static void
write_one(ckpi_buf *out, unsigned step, bool with_v, const ckp_coding *coding, ckp_checkpoint *base)
{
    ckp_state *s = state_of(step, with_v, coding->dynaquant != NULL);
    ckpi_writer *w = NULL;
    if (ckpi_writer_mem(&w, out, NULL) != CKP_OK || ckpi_state_write(w, s, coding, base, CKPI_PACK_GROUPED, true, NULL, NULL) != CKP_OK ||
        ckpi_writer_finish(w, NULL) != CKP_OK)
        abort();
    ckpi_writer_free(w);
    ckp_state_free(s);
}

static const real_files *
real_of(unsigned which)
{
    static real_files all[16];
    real_files *r = &all[which % 16];
    ckp_dynaquant dq = CKP_DYNAQUANT_INIT;
    if (r->file[0].data != NULL)
        return r;
    ckp_coding coding = CKP_CODING_INIT;
    coding.profile = (ckp_profile)(which % 4);
    coding.threads = 1;
    dq.bins = 5;
    dq.prune_by = CKP_SCORE_SENSITIVITY;
    coding.dynaquant = (which & 8) != 0 && which % 4 != CKP_PROFILE_LOSSLESS ? &dq : NULL;
    memset(memory, 0, sizeof memory);
    write_one(&r->file[0], 0, (which & 4) == 0, &coding, NULL);
    ckp_checkpoint *ck = calloc(1, sizeof *ck);
    ckpi_fmt_file *f = open_bytes(&r->file[0]);
    if (ck == NULL || f == NULL || ckpi_checkpoint_from_files(ck, &f, 1, NULL) != CKP_OK)
        abort();
    ck->pid = ckpi_pid();
    write_one(&r->file[1], 1, (which & 4) == 0, &coding, ck);
    ckp_checkpoint_close(ck);
    return r;
}

/* ---- changes ---- */

typedef struct chunk { ckpi_chunk c; ckpi_buf part[3]; ckpi_piece piece[MAX_PIECES]; } chunk;
typedef struct spoilt { chunk at[MAX_CHUNKS]; size_t n; } spoilt;

static void
take_apart(spoilt *x, const ckpi_fmt_file *f)
{
    ckpi_buf body = CKPI_BUF_INIT;
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < f->n_chunks && i < MAX_CHUNKS; i++) {
        chunk *k = &x->at[x->n++];
        ckpi_buf_clear(&body);
        if (ckpi_fmt_read_chunk(f, i, &body, &k->c, NULL) != CKP_OK || k->c.n_pieces > MAX_PIECES)
            abort();
        memcpy(k->piece, k->c.piece, k->c.n_pieces * sizeof *k->piece);
        ckpi_buf_put(&k->part[0], k->c.params, k->c.params_len);
        ckpi_buf_put(&k->part[1], k->c.escapes, k->c.escapes_len);
        ckpi_buf_put(&k->part[2], k->c.payload, k->c.payload_len);
    }
    ckpi_buf_free(&body);
}

static void
drop(spoilt *x, size_t i)
{
    for (int p = 0; p < 3; p++)
        ckpi_buf_free(&x->at[i].part[p]);
    memmove(&x->at[i], &x->at[i + 1], (x->n - i - 1) * sizeof x->at[0]);
    x->n--;
}

static void
copy(spoilt *x, size_t i)
{
    if (x->n == MAX_CHUNKS)
        return;
    chunk *k = &x->at[x->n++];
    *k = x->at[i];
    for (int p = 0; p < 3; p++) {
        k->part[p] = (ckpi_buf)CKPI_BUF_INIT;
        ckpi_buf_put(&k->part[p], x->at[i].part[p].data, x->at[i].part[p].len);
    }
}

static void
change(spoilt *x, ckpi_rd *rd)
{
    const uint8_t what = ckpi_rd_u8(rd);
    const size_t i = ckpi_rd_u8(rd) % x->n;
    chunk *k = &x->at[i];
    ckpi_buf *part = &k->part[what / 8 % 3];

    switch (what % 8) {
    case 0: {                    /* a field of the head: u8 which, u8 value */
        uint8_t *field[] = {&k->c.quant, &k->c.codec, &k->c.flags, &k->c.role, &k->c.dtype};
        uint8_t *at = field[ckpi_rd_u8(rd) % 5];
        *at = ckpi_rd_u8(rd);
        break;
    }
    case 1: {                    /* bytes of a part: u16 where, u8 how many, bytes */
        const size_t at = ckpi_rd_u16(rd), n = ckpi_rd_u8(rd);
        const uint8_t *p = ckpi_rd_bytes(rd, n);
        if (p != NULL && at + n <= part->len)
            memcpy(part->data + at, p, n);
        break;
    }
    case 2: {                    /* a part's length: u16 */
        const size_t n = ckpi_rd_u16(rd);
        part->len = CKPI_MIN(part->len, n);
        break;
    }
    case 3: {                    /* a whole part: u16 length, bytes */
        const size_t n = ckpi_rd_u16(rd);
        const uint8_t *p = ckpi_rd_bytes(rd, n);
        ckpi_buf_clear(part);
        if (p != NULL)
            ckpi_buf_put(part, p, n);
        break;
    }
    case 4:                      /* no chunk */
        if (x->n > 1)
            drop(x, i);
        break;
    case 5: {                    /* a second one, the first with fewer pieces: u8 how many */
        const size_t n = 1U + ckpi_rd_u8(rd);
        copy(x, i);
        k->c.n_pieces = CKPI_MIN(k->c.n_pieces, n);
        break;
    }
    case 6: {                    /* a piece: u8 which, u8 tensor, u16 first, u16 count */
        ckpi_piece *p = &k->piece[ckpi_rd_u8(rd) % MAX_PIECES];
        p->tensor = ckpi_rd_u8(rd);
        p->first = ckpi_rd_u16(rd);
        p->count = ckpi_rd_u16(rd);
        break;
    }
    default:                     /* their number */
        k->c.n_pieces = 1 + ckpi_rd_u8(rd) % MAX_PIECES;
    }
}

/* False when the writer sees that this is no file. */
static bool
put_together(spoilt *x, const ckpi_fmt_file *f, bool cut, ckpi_buf *out)
{
    ckpi_writer *w = NULL;
    ckpi_fmt_writer *fw = NULL;
    ckpi_fmt_sum sum;
    const bool ref = !ckpi_id_is_zero(f->info.table_content);
    ckp_status st = ckpi_writer_mem(&w, out, NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_writer_new(&fw, w, &f->info, f->table, f->tree, f->tree_len, ref ? f->table : NULL, f->tree, 0, NULL);
    for (size_t i = 0; st == CKP_OK && i < x->n; i++) {
        chunk *k = &x->at[i];
        ckpi_chunk c = k->c;
        c.piece = k->piece;
        c.params = k->part[0].data;
        c.params_len = k->part[0].len;
        c.escapes = k->part[1].data;
        c.escapes_len = k->part[1].len;
        c.payload = k->part[2].data;
        c.payload_len = k->part[2].len;
        st = ckpi_fmt_writer_chunk(fw, &c, NULL);
    }
    if (st == CKP_OK && !cut)
        st = ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL);
    ckpi_fmt_writer_free(fw);
    if (st == CKP_OK)
        st = ckpi_writer_finish(w, NULL);
    ckpi_writer_free(w);
    return st == CKP_OK;
}

/* ---- reading ---- */

static void
check(ckp_status st)
{
    if (st == CKP_EINTERNAL || st == CKP_EINVAL)
        abort();                 /* what is wrong with a file is not our fault, nor the caller's */
}

static void
decode_all(ckpi_lineage *l)
{
    ckpi_unit *u = NULL;
    ckpi_scratch *ws = ckpi_scratch_new();
    size_t n = 0;
    check(ckpi_units(l, &u, &n, NULL));
    for (size_t i = 0; ws != NULL && i < n; i++)
        for (unsigned want = 1; want <= 7; want = want < 4 ? 2 * want : want + 3) {      /* each alone, then all */
            const unsigned there = (u[i].w != CKPI_NO_CHUNK ? 1U : 0U) | (u[i].m != CKPI_NO_CHUNK ? 2U : 0U) | (u[i].v != CKPI_NO_CHUNK ? 4U : 0U);
            if ((want & there) == 0)
                continue;
            ckpi_scratch_reset(ws);
            check(ckpi_decode_unit(l, &u[i], want & there, NULL, NULL, ws, i % 2 != 0 ? ckpi_cpu() : 0, NULL));
        }
    ckpi_scratch_free(ws);
    free(u);
}

static void
read_it(const ckpi_buf *file, const real_files *real, bool delta, bool cut)
{
    ckpi_fmt_file *f[2] = {NULL, NULL};
    ckpi_reader *r = NULL;
    ckpi_lineage *l = NULL;
    uint64_t skipped = 0;
    if (delta && (f[1] = open_bytes(&real->file[0])) == NULL)
        abort();
    if (ckpi_reader_mem(&r, file->data, file->len, "fuzz", NULL) != CKP_OK)
        abort();
    const ckp_status st = cut ? ckpi_fmt_salvage(&f[0], r, f[1], &skipped, NULL) : ckpi_fmt_open(&f[0], r, NULL);
    check(st);
    if (st != CKP_OK) {
        ckpi_fmt_close(f[1]);
        return;
    }
    check(ckpi_lineage_new(&l, f, delta ? 2 : 1, NULL));
    if (l != NULL)
        decode_all(l);
    ckpi_lineage_free(l);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static spoilt x;
    ckpi_rd rd = ckpi_rd_init(data, size, 0);
    ckpi_buf file = CKPI_BUF_INIT;
    const uint8_t which = ckpi_rd_u8(&rd);
    const bool delta = (which & 4) != 0, cut = (which & 8) != 0;
    const real_files *real = real_of((which & 3U) | (which & 48U) >> 2);
    ckpi_fmt_file *f = open_bytes(&real->file[delta]), *key = open_bytes(&real->file[0]);
    if (f == NULL || key == NULL || ckpi_fmt_resolve(f, key, NULL) != CKP_OK)
        abort();
    take_apart(&x, f);
    while (ckpi_rd_left(&rd) > 1 && ckpi_rd_ok(&rd))
        change(&x, &rd);
    if (put_together(&x, f, cut, &file))
        read_it(&file, real, delta, cut);
    while (x.n > 0)
        drop(&x, x.n - 1);
    ckpi_fmt_close(f);
    ckpi_fmt_close(key);
    ckpi_buf_free(&file);
    return 0;
}
