/* SPDX-License-Identifier: Apache-2.0 */
/* Which kind of file is it, and what everybody's handle has in common. */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "io/foreign.h"

/* torch.save before 1.6: the pickled integer 0x1950a86a20f9469cfc6c, protocol 2. */
static const uint8_t legacy_magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

static const struct { size_t at, len; const char *bytes, *what; } others[] = {
    {257, 5, "ustar", "a tar file (torch.save before 0.1.10 wrote such): load and save it again with torch"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file"},
    {0, 4, "GGUF", "a GGUF file"},
    {0, 6, "\x93NUMPY", "a single numpy array"},
    {0, 4, "\x28\xb5\x2f\xfd", "a zstd stream: unpack it first"},
    {0, 2, "\x1f\x8b", "a gzip stream: unpack it first"},
    {0, 7, "version", "a text file, perhaps a Git LFS pointer: fetch the real file first"},
};

static ckp_status
not_ours(const uint8_t *head, size_t n, ckp_error *err)
{
    if (n == 0)
        return ckpi_fail(err, CKP_ETRUNCATED, "the file is empty");
    if (n >= 8 && memcmp(head, "\x89" "CKP\r\n\x1a\n", 8) == 0)
        return ckpi_fail(err, CKP_EFORMAT, "this is a .ckp file, compressed already: 'ckpress decompress' gives back what it was");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (n >= others[i].at + others[i].len && memcmp(head + others[i].at, others[i].bytes, others[i].len) == 0)
            return ckpi_fail(err, CKP_EUNSUPPORTED, "this is %s", others[i].what);
    if (n < CKPI_SNIFF && n < 10)
        return ckpi_fail(err, CKP_ETRUNCATED, "the file ends after %zu bytes", n);
    return ckpi_fail(err, CKP_EFORMAT, "neither safetensors nor a file of torch.save");
}

static ckpi_foreign_kind
kind_of(const uint8_t *head, size_t n)
{
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        return CKPI_FOREIGN_TORCH_ZIP;
    /* Protocol 4 and later put a frame of nine bytes before it. */
    const size_t at = n > 2 && head[2] == 0x95 ? 11 : 2;
    if (n >= at + sizeof legacy_magic && head[0] == 0x80 && memcmp(head + at, legacy_magic, sizeof legacy_magic) == 0)
        return CKPI_FOREIGN_TORCH_LEGACY;
    if (n >= 9 && head[8] == '{')
        return CKPI_FOREIGN_SAFETENSORS;
    return (ckpi_foreign_kind)0;
}

/* A zip's directory stands at its end, and a legacy file's storages behind the pickle that names them: both need to go back. */
static ckp_status
spool(ckpi_foreign *f, ckp_error *err)
{
    const size_t step = (size_t)1 << 20;
    const uint64_t most = f->opts.spool_max != 0 ? f->opts.spool_max : (uint64_t)1 << 30;
    for (size_t got = step; got == step;) {
        uint8_t *p = ckpi_buf_extend(&f->spooled, step);
        if (p == NULL)
            return ckpi_buf_status(&f->spooled, err, "input from a pipe");
        f->spooled.len -= step;
        const ckp_status st = ckpi_reader_some(f->file.r, f->spooled.len, p, step, &got, err);
        if (st != CKP_OK)
            return st;
        f->spooled.len += got;
        if (f->spooled.len > most)
            return ckpi_fail(err, CKP_ELIMIT, "a torch file of more than %llu bytes cannot be read from a pipe: give its name",
                             (unsigned long long)most);
    }
    const ckp_status st = ckpi_reader_mem(&f->spool, f->spooled.data, f->spooled.len, ckpi_reader_name(f->file.r), err);
    if (st == CKP_OK)
        f->file.r = f->spool;
    return st;
}

static ckp_status
open_kind(ckpi_foreign *f, ckp_error *err)
{
    uint8_t head[CKPI_SNIFF];
    size_t n;
    ckp_status st = ckpi_reader_some(f->file.r, 0, head, sizeof head, &n, err);
    if (st != CKP_OK)
        return st;
    f->kind = kind_of(head, n);
    if (f->kind == CKPI_FOREIGN_SAFETENSORS)
        return ckpi_st_open(f, head, n, err);
    if (f->kind == 0)
        return not_ours(head, n, err);
    if (!ckpi_reader_seekable(f->file.r) && (st = spool(f, err)) != CKP_OK)
        return st;
    st = f->kind == CKPI_FOREIGN_TORCH_ZIP ? ckpi_pt_open_zip(f, err) : ckpi_pt_open_legacy(f, err);
    if (st == CKP_OK && f->opts.drop_optimizers)
        st = ckpi_drop_optimizers(f->state, &f->dropped, err);
    if (st == CKP_OK && !f->opts.no_match)
        st = ckpi_match_state(f->state, f->opts.notice, f->opts.notice_user, err);
    return st;
}

ckp_status
ckpi_foreign_open(ckpi_foreign **out, ckpi_reader *r, const ckpi_foreign_options *opts, ckp_error *err)
{
    if (out == NULL || r == NULL)
        return ckpi_fail(err, CKP_EINVAL, "foreign_open: NULL argument");
    *out = NULL;
    ckpi_foreign *f = ckpi_calloc(1, sizeof *f);
    if (f == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "foreign_open: out of memory");
    if (opts != NULL)
        f->opts = *opts;
    f->file.r = r;
    ckp_status st = ckp_state_new(&f->state, err);
    if (st == CKP_OK)
        st = open_kind(f, err);
    if (st != CKP_OK) {
        ckpi_fail_file(err, ckpi_reader_name(r));
        ckpi_foreign_close(f);
        return st;
    }
    *out = f;
    return CKP_OK;
}

ckpi_foreign_kind
ckpi_foreign_what(const ckpi_foreign *f)
{
    return f->kind;
}

ckpi_dropped
ckpi_foreign_dropped(const ckpi_foreign *f)
{
    return f->dropped;
}

ckp_state *
ckpi_foreign_state(ckpi_foreign *f)
{
    return f->state;
}

ckp_status
ckpi_foreign_finish(ckpi_foreign *f, ckp_error *err)
{
    uint8_t more;
    size_t got = 0;
    if (f->kind != CKPI_FOREIGN_SAFETENSORS || ckpi_reader_seekable(f->file.r))
        return CKP_OK;
    ckp_status st = ckpi_reader_some(f->file.r, f->end, &more, 1, &got, err);
    if (st == CKP_OK && got != 0) {
        st = ckpi_fail_at(err, CKP_ECORRUPT, f->end, "bytes follow the last tensor, which ends at %llu", (unsigned long long)f->end);
        ckpi_fail_file(err, ckpi_reader_name(f->file.r));
    }
    return st;
}

void
ckpi_foreign_close(ckpi_foreign *f)
{
    if (f == NULL)
        return;
    ckp_state_free(f->state);
    ckpi_source_file_free(&f->file);
    ckpi_reader_free(f->spool);
    ckpi_buf_free(&f->spooled);
    ckpi_io_arena_free(&f->arena);
    free(f);
}

const char *
ckpi_foreign_kind_name(ckpi_foreign_kind k)
{
    switch (k) {
    case CKPI_FOREIGN_SAFETENSORS: return "safetensors";
    case CKPI_FOREIGN_TORCH_ZIP: return "torch zip";
    case CKPI_FOREIGN_TORCH_LEGACY: return "torch legacy";
    }
    return "unknown";
}
