/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "help.h"
#include <ftw.h>
#include <unistd.h>

char *
help_dir(void)
{
    /* fsync costs nothing where there is no disk, and these tests are not about power cuts */
    const char *base = getenv("TMPDIR");
    char name[512];
    if (base == NULL)
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(name, sizeof name, "%s/ckp-help-XXXXXX", base);
    assert_non_null(mkdtemp(name));
    return strdup(name);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

void
help_remove(char *dir)
{
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

const char *
help_path(const char *dir, const char *name)
{
    static char path[4][1024];
    static unsigned at;
    char *p = path[at++ % 4];
    (void)snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

/* ---- images ---- */

help_image *
help_read(ckp_checkpoint *ck)
{
    ckp_error err;
    help_image *x = calloc(1, sizeof *x);
    x->n = ckp_checkpoint_count(ck);
    x->name = calloc(x->n + 1, sizeof *x->name);
    x->data = calloc(x->n + 1, sizeof *x->data);
    x->len = calloc(x->n + 1, sizeof *x->len);
    ckp_target *t = calloc(x->n + 1, sizeof *t);
    for (size_t i = 0; i < x->n; i++) {
        ckp_tensor_info info = {.size = sizeof info};
        OK_OR_FAIL(ckp_checkpoint_tensor(ck, i, &info, &err));
        x->name[i] = strdup(info.name);
        x->len[i] = (size_t)info.raw_bytes;
        x->data[i] = calloc(1, x->len[i] + 1);
        t[i] = (ckp_target){.index = (uint32_t)i, .dtype = info.dtype, .ndim = info.ndim, .shape = info.shape, .data = x->data[i]};
    }
    OK_OR_FAIL(ckp_checkpoint_read(ck, t, x->n, 1, &err));
    free(t);
    return x;
}

help_image *
help_read_run(const char *dir, int64_t step)
{
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    OK_OR_FAIL(ckp_checkpoint_open_run(&ck, dir, step, true, &err));
    help_image *x = help_read(ck);
    ckp_checkpoint_close(ck);
    return x;
}

void
help_image_free(help_image *x)
{
    if (x == NULL)
        return;
    for (size_t i = 0; i < x->n; i++) {
        free(x->name[i]);
        free(x->data[i]);
    }
    free(x->name);
    free(x->data);
    free(x->len);
    free(x);
}

bool
help_same(const help_image *a, const help_image *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->name[i], b->name[i]) == 0 && a->len[i] == b->len[i] && memcmp(a->data[i], b->data[i], a->len[i]) == 0;
    return same;
}

bool
help_is_model(const help_image *x, const sim *m)
{
    bool same = x->n == m->n;
    for (size_t i = 0; same && i < x->n; i++)
        same = x->len[i] == m->t[i].bytes && memcmp(x->data[i], m->t[i].dense, x->len[i]) == 0;
    return same;
}

/* ---- models and saves ---- */

sim *
help_model(uint64_t seed, bool small)
{
    const uint64_t mat[2] = {small ? 6 : 90, 32}, vec[1] = {small ? 40 : 700}, odd[3] = {3, 5, 17}, none[1] = {0};
    sim *m = sim_new(seed);
    (void)sim_add_weight(m, "a.weight", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add_weight(m, "a.bias", CKP_F32, CKP_F32, CKP_F32, 1, vec);
    (void)sim_add_weight(m, "b.weight", CKP_BF16, CKP_BF16, CKP_F32, 2, mat);
    (void)sim_add_weight(m, "c.weight", CKP_F32, CKP_F32, 0, 2, mat);
    (void)sim_add(m, "running", CKP_ROLE_OTHER, SIM_NONE, CKP_F32, 1, vec);
    (void)sim_add(m, "count", CKP_ROLE_OTHER, SIM_NONE, CKP_I64, 0, NULL);
    (void)sim_add(m, "mask", CKP_ROLE_OTHER, SIM_NONE, CKP_BOOL, 3, odd);
    (void)sim_add(m, "empty", CKP_ROLE_OTHER, SIM_NONE, CKP_F32, 1, none);
    sim_train(m);
    return m;
}

ckp_run *
help_open(const char *dir, ckp_profile profile, unsigned key_every, unsigned keep_last)
{
    ckp_run *run = NULL;
    ckp_error err;
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = profile;
    o.coding.threads = 2;
    o.key_every = key_every;
    o.keep_last = keep_last;
    OK_OR_FAIL(ckp_run_open(&run, dir, &o, &err));
    return run;
}

ckp_status
help_save_try(ckp_run *run, const sim *m, const ckp_save_options *opt, ckp_error *err)
{
    ckp_state *s = NULL;
    ckp_status st = sim_state_try(m, &s, err);
    if (st == CKP_OK)
        st = ckp_run_save(run, m->step, s, opt, NULL, err);
    ckp_state_free(s);
    return st == CKP_OK ? ckp_run_wait(run, err) : st;
}

void
help_save(ckp_run *run, const sim *m, const ckp_save_options *opt)
{
    ckp_error err;
    OK_OR_FAIL(help_save_try(run, m, opt, &err));
}

/* ---- files ---- */

uint8_t *
help_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*len + 1);
    assert_int_equal(fread(p, 1, *len, f), *len);
    (void)fclose(f);
    return p;
}

void
help_write(const char *path, const void *p, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

typedef struct find { uint64_t sequence; uint64_t best; char dir[256]; size_t ok; } find;

static int
look(void *user, const ckp_list_entry *e)
{
    find *f = user;
    f->ok += strcmp(e->health, "ok") == 0;
    if ((f->sequence != 0 && e->sequence == f->sequence) || (f->sequence == 0 && e->sequence > f->best)) {
        f->best = e->sequence;
        (void)snprintf(f->dir, sizeof f->dir, "%s", e->dir);
    }
    return 0;
}

char *
help_shard(const char *dir, uint64_t sequence)
{
    find f = {.sequence = sequence};
    ckp_error err;
    char name[512];
    OK_OR_FAIL(ckp_run_list(dir, look, &f, &err));
    assert_true(f.dir[0] != '\0');
    (void)snprintf(name, sizeof name, "%s/%s/shard-00000-of-00001.ckp", dir, f.dir);
    return strdup(name);
}

size_t
help_count(const char *dir)
{
    find f = {.sequence = UINT64_MAX};
    ckp_error err;
    OK_OR_FAIL(ckp_run_list(dir, look, &f, &err));
    return f.ok;
}
