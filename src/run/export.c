/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint as files in a directory. One file is what decompress.c makes; a model's weights may be several, in the table's order, and then the
 * index is what makes them one: it comes last, and an older one goes first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_export.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "run/emit.h"
#include "run/file.h"

#define HF_ONE "model.safetensors"
#define HF_INDEX "model.safetensors.index.json"
#define HF_BIN "pytorch_model.bin"
#define HF_NAME 48
#define HF_MAX_FILES 99999u

static char *
in_dir(const char *dir, const char *name, const char *ending, ckp_error *err)
{
    const size_t cap = strlen(dir) + strlen(name) + strlen(ending) + 2;
    char *path = ckpi_malloc(cap, 1);
    if (path == NULL)
        (void)ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
    else
        (void)snprintf(path, cap, "%s/%s%s", dir, name, ending);
    return path;
}

static ckp_status
make_dir(const char *dir, ckpi_fs **fs, ckp_error *err)
{
    const ckp_status st = ckpi_fs_posix(fs, dir, true, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, dir);
    return st;
}

/* ---- one file ------------------------------------------------------------------------------------------------------ */

static ckp_status
export_one(ckp_checkpoint *ck, const char *path, const ckp_export_options *o, ckp_exported *done, ckp_error *err)
{
    ckp_convert_options c = CKP_CONVERT_OPTIONS_INIT;
    ckp_convert_result res = {.size = sizeof res};

    c.coding.threads = o->threads;
    c.coding.progress = o->progress;
    c.coding.progress_user = o->progress_user;
    c.replace = o->replace;
    c.only = o->only;
    c.notice = o->notice;
    c.notice_user = o->notice_user;
    const ckp_status st = ckp_checkpoint_export(ck, path, &c, &res, err);
    if (st != CKP_OK)
        return st;
    const char *slash = strrchr(path, '/');
    (void)snprintf(done->name, sizeof done->name, "%s", slash != NULL ? slash + 1 : path);
    done->files = 1;
    done->tensors = res.tensors;
    done->bytes = res.out_bytes;
    done->values_lost = res.values_lost;
    return CKP_OK;
}

/* ---- a model's weights --------------------------------------------------------------------------------------------- */

typedef struct hf {
    ckp_checkpoint *ck;
    const ckp_export_options *o;
    ckp_exported *done;
    const char *dir;
    ckpi_fs *fs;
    ckpi_subset all;
    const char **file;           /* by tensor: into names */
    char (*name)[HF_NAME];       /* of each file */
    size_t n_files;
} hf;

/* Whose tensors: the caller's choice, a run's object "model", or all where a file holds nothing else. */
static ckp_status
choose(const ckpi_table *t, const char **only, ckp_error *err)
{
    bool moments = false;

    if (*only != NULL)
        return CKP_OK;
    for (size_t i = 0; i < t->n; i++) {
        if (ckpi_subset_name(t->rec[i].name, "model") != NULL) {
            *only = "model";
            return CKP_OK;
        }
        moments = moments || t->rec[i].role == CKP_ROLE_M || t->rec[i].role == CKP_ROLE_V || t->rec[i].role == CKP_ROLE_MOMENTUM;
    }
    if (moments)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "it holds optimizer state, and no object named 'model': name the one that is (only)");
    return CKP_OK;
}

/* Tensors go into files in their order; a file is full when the next one does not fit. */
static ckp_status
split(hf *h, ckp_error *err)
{
    uint64_t in_file = 0;
    size_t files = h->all.n != 0 ? 1 : 0;
    uint32_t *number = ckpi_calloc(h->all.n + 1, sizeof *number);

    h->file = ckpi_calloc(h->all.n + 1, sizeof *h->file);
    for (size_t i = 0; number != NULL && i < h->all.n; i++) {
        const uint64_t bytes = h->all.tensor[i].bytes;
        if (in_file != 0 && (bytes > h->o->max_file_bytes || in_file > h->o->max_file_bytes - bytes)) {
            files++;
            in_file = 0;
        }
        in_file += bytes;
        number[i] = (uint32_t)files - 1;
    }
    h->n_files = files;
    h->name = ckpi_calloc(files + 1, sizeof *h->name);
    ckp_status st = number == NULL || h->file == NULL || h->name == NULL ? ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", h->all.n) : CKP_OK;
    if (st == CKP_OK && files > HF_MAX_FILES)
        st = ckpi_fail(err, CKP_ELIMIT, "%zu files of weights: allow more bytes in one", files);
    for (size_t i = 0; st == CKP_OK && i < files; i++)
        (void)snprintf(h->name[i], sizeof h->name[i], files == 1 ? HF_ONE : "model-%05u-of-%05u.safetensors", (unsigned)(i + 1), (unsigned)files);
    for (size_t i = 0; st == CKP_OK && i < h->all.n; i++)
        h->file[i] = h->name[number[i]];
    free(number);
    return st;
}

typedef struct look { const char *found; char name[64]; } look;

/* Whether a name is that of weights which a loader would take. */
static bool
look_at(void *user, const char *entry, bool is_dir)
{
    look *l = user;
    const size_t n = strlen(entry);
    const bool shard = n > 18 && n < sizeof l->name && strncmp(entry, "model-", 6) == 0 && strcmp(entry + n - 12, ".safetensors") == 0;

    if (is_dir || (strcmp(entry, HF_ONE) != 0 && strcmp(entry, HF_INDEX) != 0 && strcmp(entry, HF_BIN) != 0 && !shard))
        return true;
    (void)snprintf(l->name, sizeof l->name, "%s", entry);
    l->found = l->name;
    return false;
}

static ckp_status
refuse_others(const hf *h, ckp_error *err)
{
    look l = {0};

    ckp_status st = h->o->replace ? CKP_OK : h->fs->ops->list(h->fs, "", look_at, &l, err);
    if (st == CKP_OK && l.found != NULL)
        st = ckpi_fail(err, CKP_EEXIST, "weights of a model are there already (%s)", l.name);
    return st;
}

/* Some tensors of h->all as a subset of their own. */
static ckp_status
part_of(const hf *h, const char *file, ckpi_emit *x, ckp_error *err)
{
    const ckpi_table *t = h->ck->lin->table;

    x->t = t;
    x->open = CKPI_NO_TENSOR;
    x->kind = "safetensors";
    x->sub = (ckpi_subset){.tensor = ckpi_calloc(h->all.n + 1, sizeof *x->sub.tensor), .row = ckpi_calloc(h->all.n + 1, sizeof *x->sub.row),
                           .number = ckpi_malloc(t->n + 1, sizeof *x->sub.number)};
    if (x->sub.tensor == NULL || x->sub.row == NULL || x->sub.number == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", h->all.n);
    for (size_t i = 0; i <= t->n; i++)
        x->sub.number[i] = CKPI_NO_TENSOR;
    for (size_t i = 0; i < h->all.n; i++) {
        if (h->file[i] != file)
            continue;
        x->sub.tensor[x->sub.n] = h->all.tensor[i];
        x->sub.tensor[x->sub.n].alias_of = CKPI_NO_TENSOR;       /* each has its own data in a safetensors file */
        x->sub.row[x->sub.n] = h->all.row[i];
        x->sub.number[h->all.row[i]] = (uint32_t)x->sub.n++;
    }
    return CKP_OK;
}

static ckp_status
write_part(hf *h, const char *file, ckp_error *err)
{
    ckpi_emit x = {0};
    ckpi_out out = {0};
    char *path = in_dir(h->dir, file, "", err);

    ckp_status st = path != NULL ? part_of(h, file, &x, err) : CKP_ENOMEM;
    if (st == CKP_OK)
        st = ckpi_out_open(&out, path, h->o->replace, NULL, err);
    if (st == CKP_OK)
        st = ckpi_export_st_format(&x.e, out.w, "pt", x.sub.tensor, x.sub.n, err);
    if (st == CKP_OK)
        st = ckpi_emit_all(&x, h->ck, h->o->threads, h->o->progress, h->o->progress_user, err);
    if (st == CKP_OK)
        st = ckpi_export_finish(x.e, err);
    if (st == CKP_OK)
        st = ckpi_out_commit(&out, err);
    if (st == CKP_OK) {
        h->done->files++;
        h->done->bytes += ckpi_writer_pos(out.w);
    }
    ckpi_export_free(x.e);
    ckpi_out_free(&out);
    ckpi_subset_free(&x.sub);
    free(path);
    return st;
}

static ckp_status
write_index(hf *h, ckp_error *err)
{
    ckpi_buf text = CKPI_BUF_INIT;
    ckpi_out out = {0};
    uint64_t total = 0;
    char *path = in_dir(h->dir, HF_INDEX, "", err);

    for (size_t i = 0; i < h->all.n; i++)
        total += h->all.tensor[i].bytes;
    ckp_status st = path != NULL ? ckpi_st_index(&text, h->all.tensor, h->file, h->all.n, total, err) : CKP_ENOMEM;
    if (st == CKP_OK)
        st = ckpi_out_open(&out, path, h->o->replace, NULL, err);
    if (st == CKP_OK)
        st = ckpi_writer_put(out.w, text.data, text.len, err);
    if (st == CKP_OK)
        st = ckpi_out_commit(&out, err);
    if (st == CKP_OK) {
        h->done->files++;
        h->done->bytes += text.len;
    }
    ckpi_out_free(&out);
    ckpi_buf_free(&text);
    free(path);
    return st;
}

static ckp_status
drop(const hf *h, const char *name, ckp_error *err)
{
    ckp_status st = h->fs->ops->unlink(h->fs, name, err);
    if (st == CKP_ENOTFOUND)
        return CKP_OK;
    return st == CKP_OK ? h->fs->ops->sync_dir(h->fs, "", err) : st;
}

/* A directory that holds what the checkpoint is based on: nothing there is replaced by what is made of it. */
static ckp_status
spare_bases(const hf *h, ckp_error *err)
{
    ckp_status st = CKP_OK;

    for (size_t i = 0; st == CKP_OK && i <= h->n_files; i++) {
        char *path = in_dir(h->dir, i < h->n_files ? h->name[i] : HF_ONE, "", err);
        st = path != NULL ? ckpi_out_spares(h->ck, 0, path, err) : CKP_ENOMEM;
        free(path);
    }
    return st;
}

/* What is replaced must not go for something that cannot be written or decoded. */
static ckp_status
check_weights(const hf *h, ckp_error *err)
{
    ckp_status st = ckpi_st_check(h->all.tensor, h->all.n, err);
    if (st == CKP_OK && h->o->replace)
        st = spare_bases(h, err);
    return st == CKP_OK && h->o->replace ? ckp_checkpoint_verify(h->ck, CKP_VERIFY_DECODE, h->o->threads, NULL, NULL, err) : st;
}

/*
 * Without an index nobody reads parts, so it goes before them; a single file that lies beside an index is what loaders take: it goes when that is whole, and
 * the other way round.
 */
static ckp_status
write_weights(hf *h, ckp_error *err)
{
    ckp_status st = check_weights(h, err);
    if (st == CKP_OK && h->n_files > 1 && h->o->replace)
        st = drop(h, HF_INDEX, err);
    for (size_t i = 0; st == CKP_OK && i < h->n_files; i++)
        st = write_part(h, h->name[i], err);
    if (st == CKP_OK && h->n_files > 1)
        st = write_index(h, err);
    if (st == CKP_OK && h->n_files > 1 && h->o->replace)
        st = drop(h, HF_ONE, err);
    if (st == CKP_OK && h->n_files == 1 && h->o->replace)
        st = drop(h, HF_INDEX, err);
    return st;
}

static ckp_status
export_hf(ckp_checkpoint *ck, const char *dir, ckpi_fs *fs, const ckp_export_options *o, ckp_exported *done, ckp_error *err)
{
    hf h = {.ck = ck, .o = o, .done = done, .dir = dir, .fs = fs};
    const char *only = o->only;

    ckp_status st = choose(ck->lin->table, &only, err);
    if (st == CKP_OK)
        st = ckpi_subset_new(&h.all, ck->lin->table, only, err);
    if (st == CKP_OK && h.all.n == 0)
        st = ckpi_fail(err, CKP_ENOTFOUND, "it holds no tensor");
    if (st == CKP_OK)
        st = refuse_others(&h, err);
    if (st == CKP_OK)
        st = split(&h, err);
    if (st == CKP_OK)
        st = write_weights(&h, err);
    done->tensors = h.all.n;
    (void)snprintf(done->name, sizeof done->name, "%s", h.n_files > 1 ? HF_INDEX : HF_ONE);
    free(h.file);
    free(h.name);
    ckpi_subset_free(&h.all);
    return st;
}

/* ---- entry --------------------------------------------------------------------------------------------------------- */

ckp_status
ckp_checkpoint_export_to(ckp_checkpoint *ck, const char *dir, const char *name, const ckp_export_options *opt, ckp_exported *done, ckp_error *err)
{
    ckpi_fs *fs = NULL;

    ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st != CKP_OK)
        return st;
    if (dir == NULL || opt == NULL || opt->size != sizeof *opt || done == NULL || done->size != sizeof *done || (unsigned)opt->to > CKP_EXPORT_HF ||
        opt->max_file_bytes == 0 || (opt->to != CKP_EXPORT_HF && (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL)))
        return ckpi_fail(err, CKP_EINVAL, "export: NULL argument, bad size, kind or name");
    *done = (ckp_exported){.size = sizeof *done};
    st = make_dir(dir, &fs, err);
    if (st == CKP_OK && opt->to == CKP_EXPORT_HF) {
        st = export_hf(ck, dir, fs, opt, done, err);
        ckpi_fail_file(st != CKP_OK ? err : NULL, dir);
    } else if (st == CKP_OK) {
        char *path = in_dir(dir, name, opt->to == CKP_EXPORT_PT ? ".pt" : ".safetensors", err);
        st = path != NULL ? export_one(ck, path, opt, done, err) : CKP_ENOMEM;
        free(path);
    }
    ckpi_fs_free(fs);
    return st;
}
