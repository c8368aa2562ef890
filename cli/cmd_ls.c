/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress ls: checkpoints of a run, or tensors of one checkpoint. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "json.h"
#include "place.h"
#include "table.h"

/* ---- checkpoints ---------------------------------------------------------------------------------------------------- */

typedef struct listing { cli_table tab; cli_json j; bool json; uint64_t n, bad; char *model; } listing;

/* Of a lossy run, a save whose weights are exact: its last one, or one that missed its budget. */
static bool
is_exact(const ckp_list_entry *e)
{
    ckp_metric m = {0};

    for (size_t i = 0; ckp_list_entry_setting(e, i, &m); i++)
        if (strcmp(m.name, "step") == 0)
            return m.value == 0.0;
    return false;
}

static void
json_entry(cli_json *j, const ckp_list_entry *e)
{
    ckp_metric m = {0};

    cli_json_open(j, NULL, '{');
    cli_json_str(j, "dir", e->dir);
    cli_json_u64(j, "step", e->step);
    cli_json_u64(j, "sequence", e->sequence);
    cli_json_str(j, "kind", e->sequence == 0 ? NULL : e->is_delta ? "delta" : "key");
    cli_json_bool(j, "exact", is_exact(e));
    cli_json_str(j, "dropped", ckp_list_entry_dropped(e));
    cli_json_u64(j, "stored_bytes", e->stored_bytes);
    cli_json_u64(j, "raw_bytes", e->raw_bytes);
    cli_json_u64(j, "params", e->params);
    cli_json_str(j, "base", e->base_dir[0] != '\0' ? e->base_dir : NULL);
    cli_json_str(j, "base_model", e->base_model);
    cli_json_u64(j, "saved_unix", e->saved_unix > 0 ? (uint64_t)e->saved_unix : 0);
    cli_json_str(j, "health", e->health);
    cli_json_open(j, "metrics", '{');
    for (size_t i = 0; ckp_list_entry_metric(e, i, &m); i++)
        cli_json_double(j, m.name, m.value);
    cli_json_close(j, '}');
    cli_json_close(j, '}');
}

/* One word in the table, the reason under it. */
static void
add_health(cli_table *tab, const char *health)
{
    const size_t n = strcspn(health, ":");
    cli_text t;

    (void)snprintf(t.s, sizeof t.s, "%.*s", (int)n, health);
    cli_table_add(tab, t.s);
    if (health[n] == ':')
        cli_table_note(tab, health + n + 1 + strspn(health + n + 1, " "));
}

static void
table_entry(cli_table *tab, const ckp_list_entry *e)
{
    const bool whole = e->sequence != 0;     /* it has a manifest */
    cli_text t;

    (void)snprintf(t.s, sizeof t.s, "%llu", (unsigned long long)e->step);
    cli_table_add(tab, t.s);
    (void)snprintf(t.s, sizeof t.s, "%s%s", e->is_delta ? "delta" : "key", is_exact(e) ? ", exact" : ckp_list_entry_dropped(e) != NULL ? ", thinned" : "");
    cli_table_add(tab, whole ? t.s : "-");
    cli_table_add(tab, whole ? cli_size(&t, e->stored_bytes) : "-");
    cli_table_add(tab, whole ? cli_bits(&t, e->stored_bytes, e->params) : "-");
    cli_table_add(tab, whole ? cli_ratio(&t, e->raw_bytes, e->stored_bytes) : "-");
    /* from its name: the base itself may be gone */
    (void)snprintf(t.s, sizeof t.s, "%llu", strncmp(e->base_dir, "step-", 5) == 0 ? strtoull(e->base_dir + 5, NULL, 10) : 0);
    cli_table_add(tab, e->base_dir[0] != '\0' ? t.s : e->base_model != NULL ? "model" : "-");
    cli_table_add(tab, cli_when(&t, e->saved_unix, false));
    cli_table_add(tab, e->saved_unix > 0 ? cli_duration(&t, (int64_t)time(NULL) - e->saved_unix) : "-");
    add_health(tab, e->health);
}

static int
list_entry(void *user, const ckp_list_entry *e)
{
    listing *l = user;

    l->n++;
    l->bad += strcmp(e->health, "ok") != 0;
    if (l->json) {
        json_entry(&l->j, e);
        return 0;
    }
    table_entry(&l->tab, e);
    if (e->base_model != NULL) {
        free(l->model);
        l->model = cli_copy(e->base_model);
    }
    return cli_signal();
}

static bool
is_file(const char *dir, const char *name)
{
    char path[8192];
    struct stat sb;
    const int n = dir != NULL ? snprintf(path, sizeof path, "%s/%s", dir, name) : snprintf(path, sizeof path, "%s", name);

    return n > 0 && (size_t)n < sizeof path && stat(path, &sb) == 0 && S_ISREG(sb.st_mode);
}

/* The newest base model, and whether it can be found. */
static void
tell_model(const char *dir, const char *model)
{
    const char *slash = strrchr(model, '/'), *name = slash != NULL ? slash + 1 : model;
    const bool inside = is_file(dir, name);

    (void)fputs("base model: ", stdout);
    cli_safe(stdout, inside ? name : model);
    (void)puts(inside ? ", in the run's directory" : is_file(NULL, model) ? "" : " IS MISSING: nothing that is predicted from it can be restored without");
}

static int
list_run(const char *path, const cli_args *a)
{
    static const char *const head[] = {"STEP", "KIND", "SIZE", "BITS/PARAM", "RATIO", "BASE", "SAVED", "AGE", "HEALTH"};
    listing l = {.json = a->json};
    ckp_error e = {0};

    cli_table_init(&l.tab, "rlrrrrlrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&l.tab, head[i]);
    if (a->json)
        cli_json_open(&l.j, NULL, '[');
    const ckp_status st = ckp_run_list(path, list_entry, &l, &e);
    if (a->json)
        cli_json_close(&l.j, ']');
    else if (st == CKP_OK && l.n == 0 && !a->quiet)
        cli_note("%s: no checkpoint yet", path);
    else if (st == CKP_OK && l.n != 0)
        cli_table_print(&l.tab, 0);
    cli_table_free(&l.tab);
    if (l.model != NULL && !a->json)
        tell_model(path, l.model);
    free(l.model);
    return cli_told(st, &e);
}

/* ---- tensors -------------------------------------------------------------------------------------------------------- */

static void
shape_text(char *out, size_t cap, const ckp_tensor_info *t)
{
    size_t at = (size_t)snprintf(out, cap, "[");
    for (unsigned i = 0; i < t->ndim && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%llu", i != 0 ? ", " : "", (unsigned long long)t->shape[i]);
    if (at < cap)
        (void)snprintf(out + at, cap - at, "]");
}

static void
json_tensor(cli_json *j, const ckp_checkpoint *ck, const ckp_tensor_info *t, ckp_role role)
{
    ckp_tensor_info other = {.size = sizeof other};

    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", t->name);
    cli_json_str(j, "role", ckp_role_name(role));
    cli_json_str(j, "dtype", ckp_dtype_name(t->dtype));
    cli_json_open(j, "shape", '[');
    for (unsigned i = 0; i < t->ndim; i++)
        cli_json_u64(j, NULL, t->shape[i]);
    cli_json_close(j, ']');
    cli_json_u64(j, "elements", t->numel);
    cli_json_u64(j, "raw_bytes", t->raw_bytes);
    cli_json_u64(j, "stored_bytes", t->stored_bytes);
    cli_json_num(j, "bits_per_element", t->bits_per_element);
    cli_json_str(j, "codec", t->codec);
    cli_json_bool(j, "lossy", t->lossy);
    if (t->owner != UINT32_MAX && ckp_checkpoint_tensor(ck, t->owner, &other, NULL) == CKP_OK)
        cli_json_str(j, "owner", other.name);
    if (t->alias_of != UINT32_MAX && ckp_checkpoint_tensor(ck, t->alias_of, &other, NULL) == CKP_OK)
        cli_json_str(j, "alias_of", other.name);
    if (t->copy_of != UINT32_MAX && ckp_checkpoint_tensor(ck, t->copy_of, &other, NULL) == CKP_OK)
        cli_json_str(j, "copy_of", other.name);
    if (t->lossy) {
        cli_json_num(j, "rms_rel_error", t->rms_rel_error);
        cli_json_num(j, "max_rel_error", t->max_rel_error);
    }
    cli_json_close(j, '}');
}

static void
table_tensor(cli_table *tab, const ckp_checkpoint *ck, const ckp_tensor_info *t, ckp_role role)
{
    ckp_tensor_info other = {.size = sizeof other};
    char shape[512], alias[512];
    cli_text s;

    cli_table_add(tab, t->name);
    cli_table_add(tab, ckp_role_name(role));
    cli_table_add(tab, ckp_dtype_name(t->dtype));
    shape_text(shape, sizeof shape, t);
    cli_table_add(tab, shape);
    cli_table_add(tab, cli_size(&s, t->raw_bytes));
    const uint32_t from = t->alias_of != UINT32_MAX ? t->alias_of : t->copy_of;
    const bool elsewhere = from != UINT32_MAX && ckp_checkpoint_tensor(ck, from, &other, NULL) == CKP_OK;
    cli_table_add(tab, elsewhere ? "-" : cli_size(&s, t->stored_bytes));
    (void)snprintf(s.s, sizeof s.s, "%.2f", t->bits_per_element);
    cli_table_add(tab, elsewhere || t->numel == 0 ? "-" : s.s);
    (void)snprintf(alias, sizeof alias, "%s %.480s", t->alias_of != UINT32_MAX ? "=" : "rounded from", elsewhere ? other.name : "");
    cli_table_add(tab, elsewhere ? alias : t->codec);
}

static int
list_tensors(const ckp_checkpoint *ck, const cli_args *a)
{
    static const char *const head[] = {"TENSOR", "ROLE", "DTYPE", "SHAPE", "RAW", "STORED", "BITS", "CODEC"};
    cli_table tab;
    cli_json j = {0};
    ckp_error e = {0};
    bool matched = false;
    const size_t n = ckp_checkpoint_count(ck);
    ckp_role *role = cli_alloc(n * sizeof *role);
    ckp_status st = ckp_checkpoint_roles(ck, role, n, &matched, &e);

    cli_table_init(&tab, "llllrrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&tab, head[i]);
    if (a->json)
        cli_json_open(&j, NULL, '[');
    for (size_t i = 0; st == CKP_OK && i < n; i++) {
        ckp_tensor_info t = {.size = sizeof t};
        st = ckp_checkpoint_tensor(ck, i, &t, &e);
        if (st == CKP_OK && a->json)
            json_tensor(&j, ck, &t, role[i]);
        else if (st == CKP_OK)
            table_tensor(&tab, ck, &t, role[i]);
    }
    if (a->json)
        cli_json_close(&j, ']');
    else
        cli_table_print(&tab, 0);
    cli_table_free(&tab);
    free(role);
    return cli_told(st, &e);
}

static int
ls(const cli_args *a)
{
    cli_place place;
    ckp_checkpoint *ck = NULL;

    int code = cli_place_parse(&place, a->arg[0]);
    if (code == CLI_OK && place.is_run && !place.has_step) {
        code = list_run(place.path, a);
    } else if (code == CLI_OK) {
        code = cli_place_open(&ck, &place, a);
        if (code == CLI_OK)
            code = list_tensors(ck, a);
    }
    ckp_checkpoint_close(ck);
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_ls = {
    .name = "ls",
    .args = "FILE | RUN[@STEP]",
    .summary = "List the tensors of a file, or the checkpoints of a run",
    .text = "Of a run, its checkpoints in the order in which they were saved, then directories that look like one and are none, with what is wrong\n"
            "below the line; \"exact\" is a save of a lossy run whose weights are not lossy. With @STEP, the tensors of that checkpoint. Damage\n"
            "that structure alone does not show is found by 'ckpress verify'; 'ckpress log' tells how the run came about.\n"
            "\n"
            "  ckpress ls runs/gpt\n"
            "  ckpress ls model.ckp --json",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_BASE) | CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 1,
    .run = ls,
};
