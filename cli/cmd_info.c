/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress info: what one checkpoint is, what its roles cost, and what a lossy one lost. */
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "place.h"
#include "settings.h"
#include "table.h"

/* Everything that is shown, gathered once for both ways of showing it. */
typedef struct facts {
    const char *path;
    const cli_place *place;
    const cli_args *a;
    ckp_checkpoint *ck;
    ckp_checkpoint_info i;
    uint64_t params;         /* weights and masters: what "bits a parameter" divides by */
    uint64_t tensors, aliases;
    ckp_tensor_info *lossy;  /* worst first */
    size_t n_lossy;
    bool matched;            /* roles are not stored but found */
    cli_settings set;
    ckp_list_entry *chain;   /* of a run: bases, nearest first */
    size_t n_chain;
} facts;

static int
by_error(const void *x, const void *y)
{
    const ckp_tensor_info *a = x, *b = y;
    if (a->rms_rel_error != b->rms_rel_error)
        return a->rms_rel_error > b->rms_rel_error ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Counts a tensor under the role that was found for it; sums stay. */
static void
move_role(facts *f, const ckp_tensor_info *t, ckp_role to)
{
    const uint64_t stored = t->stored_bytes < f->i.stored_by_role[t->role] ? t->stored_bytes : f->i.stored_by_role[t->role];

    if (t->alias_of != UINT32_MAX)
        return;
    f->i.params_by_role[t->role] -= t->numel;
    f->i.params_by_role[to] += t->numel;
    f->i.raw_by_role[t->role] -= t->raw_bytes;
    f->i.raw_by_role[to] += t->raw_bytes;
    f->i.stored_by_role[t->role] -= stored;
    f->i.stored_by_role[to] += stored;
}

static int
gather_roles(facts *f)
{
    const size_t n = ckp_checkpoint_count(f->ck);
    ckp_role *role = cli_alloc(n * sizeof *role);
    ckp_error e = {0};
    bool found = false;

    ckp_status st = ckp_checkpoint_roles(f->ck, role, n, &found, &e);
    for (size_t i = 0; found && st == CKP_OK && i < n; i++) {
        ckp_tensor_info t = {.size = sizeof t};
        if (role[i] == CKP_ROLE_OTHER)
            continue;
        st = ckp_checkpoint_tensor(f->ck, i, &t, &e);
        if (st == CKP_OK)
            move_role(f, &t, role[i]);
        f->matched = true;
    }
    free(role);
    f->params = f->i.params_by_role[CKP_ROLE_WEIGHT] + f->i.params_by_role[CKP_ROLE_MASTER];
    return cli_told(st, &e);
}

static int
gather_tensors(facts *f)
{
    f->tensors = ckp_checkpoint_count(f->ck);
    f->lossy = cli_alloc((size_t)f->tensors * sizeof *f->lossy);
    for (size_t i = 0; i < f->tensors; i++) {
        ckp_tensor_info t = {.size = sizeof t};
        ckp_error e = {0};
        const ckp_status st = ckp_checkpoint_tensor(f->ck, i, &t, &e);
        if (st != CKP_OK)
            return cli_told(st, &e);
        f->aliases += t.alias_of != UINT32_MAX;
        /* a first moment keeps its projection, which has no error to record */
        const bool recorded = t.max_rel_error > 0.0 || t.rms_rel_error > 0.0 || t.n_nan + t.n_inf != 0;
        if (t.lossy && t.alias_of == UINT32_MAX && t.copy_of == UINT32_MAX && recorded)
            f->lossy[f->n_lossy++] = t;
    }
    qsort(f->lossy, f->n_lossy, sizeof *f->lossy, by_error);
    return CLI_OK;
}

/* ---- the bases, from the run's list --------------------------------------------------------------------------------- */

typedef struct all_entries { ckp_list_entry *v; size_t n, cap; } all_entries;

static int
keep_entry(void *user, const ckp_list_entry *e)
{
    all_entries *all = user;
    if (all->n == all->cap) {
        const size_t cap = all->cap != 0 ? 2 * all->cap : 64;
        ckp_list_entry *grown = cli_alloc(cap * sizeof *grown);
        if (all->n != 0)
            (void)memcpy(grown, all->v, all->n * sizeof *grown);
        free(all->v);
        all->v = grown;
        all->cap = cap;
    }
    all->v[all->n++] = *e;
    return 0;
}

static const ckp_list_entry *
entry_named(const all_entries *all, const char *dir)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->v[i].dir, dir) == 0)
            return &all->v[i];
    return NULL;
}

static int
gather_chain(facts *f)
{
    all_entries all = {0};
    ckp_error e = {0};

    if (!f->place->is_run)
        return CLI_OK;
    const ckp_status st = ckp_run_list(f->place->path, keep_entry, &all, &e);
    f->chain = cli_alloc((all.n + 1) * sizeof *f->chain);
    const ckp_list_entry *at = st == CKP_OK ? entry_named(&all, f->i.name) : NULL;
    /* as many as there are entries at most: a ring in a damaged run must not hold us */
    while (at != NULL && at->base_dir[0] != '\0' && f->n_chain < all.n && (at = entry_named(&all, at->base_dir)) != NULL)
        f->chain[f->n_chain++] = *at;
    free(all.v);
    return cli_told(st, &e);
}

/* ---- showing -------------------------------------------------------------------------------------------------------- */

/* A file that does not record its profile still says whether anything was lost. */
static const char *
profile_of(const facts *f)
{
    const char *name = ckp_profile_name(f->i.profile);
    return f->i.lossy && f->i.profile == CKP_PROFILE_LOSSLESS ? "lossy" : name;
}

static void
print_roles(const facts *f)
{
    cli_text t;
    cli_table tab;

    cli_table_init(&tab, "lrrrrr");
    const char *const head[] = {"ROLE", "PARAMS", "RAW", "STORED", "BITS/PARAM", "RATIO"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&tab, head[i]);
    for (int r = 0; r < CKP_ROLE_COUNT_; r++) {
        if (f->i.params_by_role[r] == 0)
            continue;
        cli_table_add(&tab, ckp_role_name((ckp_role)r));
        cli_table_add(&tab, cli_count(&t, f->i.params_by_role[r]));
        cli_table_add(&tab, cli_size(&t, f->i.raw_by_role[r]));
        cli_table_add(&tab, cli_size(&t, f->i.stored_by_role[r]));
        cli_table_add(&tab, cli_bits(&t, f->i.stored_by_role[r], f->i.params_by_role[r]));
        cli_table_add(&tab, cli_ratio(&t, f->i.raw_by_role[r], f->i.stored_by_role[r]));
    }
    cli_table_add(&tab, "overhead");
    cli_table_add(&tab, "-");
    cli_table_add(&tab, "-");
    cli_table_add(&tab, cli_size(&t, f->i.overhead_bytes));
    cli_table_add(&tab, cli_bits(&t, f->i.overhead_bytes, f->params));
    cli_table_add(&tab, "-");
    cli_table_add(&tab, "all");
    cli_table_add(&tab, f->params != 0 ? cli_count(&t, f->params) : "-");
    cli_table_add(&tab, cli_size(&t, f->i.raw_bytes));
    cli_table_add(&tab, cli_size(&t, f->i.stored_bytes));
    cli_table_add(&tab, cli_bits(&t, f->i.stored_bytes, f->params));
    cli_table_add(&tab, cli_ratio(&t, f->i.raw_bytes, f->i.stored_bytes));
    cli_table_print(&tab, 2);
}

static void
print_errors(const facts *f)
{
    enum { SHOWN = 8 };
    const size_t n = f->a->verbose || f->n_lossy <= SHOWN ? f->n_lossy : SHOWN;
    cli_table tab;

    if (n == 0)
        return;
    (void)printf("\nlossy tensors: errors relative to the tensor's RMS (v: the largest relative to the value)%s:\n",
                 n < f->n_lossy ? ", worst first" : "");
    cli_table_init(&tab, "lrrrr");
    const char *const head[] = {"TENSOR", "RMS", "MAX", "NAN", "INF"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&tab, head[i]);
    for (size_t i = 0; i < n; i++) {
        const ckp_tensor_info *t = &f->lossy[i];
        cli_text s;
        cli_table_add(&tab, t->name);
        (void)snprintf(s.s, sizeof s.s, "%.3g", t->rms_rel_error);
        cli_table_add(&tab, t->role == CKP_ROLE_V ? "-" : s.s);
        (void)snprintf(s.s, sizeof s.s, "%.3g", t->max_rel_error);
        cli_table_add(&tab, s.s);
        (void)snprintf(s.s, sizeof s.s, "%llu", (unsigned long long)t->n_nan);
        cli_table_add(&tab, s.s);
        (void)snprintf(s.s, sizeof s.s, "%llu", (unsigned long long)t->n_inf);
        cli_table_add(&tab, s.s);
    }
    cli_table_print(&tab, 2);
    if (n < f->n_lossy)
        (void)printf("  ... %zu more with -v\n", f->n_lossy - n);
}

static void
print_metrics(const facts *f)
{
    ckp_metric m;
    size_t n = 0;

    for (size_t i = 0; ckp_checkpoint_metric(f->ck, i, &m); i++) {
        if (cli_is_measured(m.name))
            continue;
        (void)fputs(n++ == 0 ? "metrics: " : ", ", stdout);
        cli_safe(stdout, m.name);
        (void)printf(" %g", m.value);
    }
    if (n != 0)
        (void)putchar('\n');
}

static void
json_metrics(cli_json *j, const facts *f)
{
    ckp_metric m;

    cli_json_open(j, "metrics", '{');
    for (size_t i = 0; ckp_checkpoint_metric(f->ck, i, &m); i++)
        cli_json_double(j, m.name, m.value);
    cli_json_close(j, '}');
}

static void
print_human(const facts *f)
{
    cli_safe(stdout, f->path);
    (void)printf(": %s %s", profile_of(f), f->i.is_delta ? "delta" : "key");
    if (f->place->is_run) {
        (void)printf(" of step %llu (", (unsigned long long)f->i.step);
        cli_safe(stdout, f->i.name);
        (void)printf("), sequence %llu, restore count %llu", (unsigned long long)f->i.sequence, (unsigned long long)f->i.restore_count);
    }
    if (!f->i.lossy && f->i.profile != CKP_PROFILE_LOSSLESS)
        (void)fputs(", all of it lossless", stdout);
    (void)printf("\n%llu tensors", (unsigned long long)f->tensors);
    if (f->aliases != 0)
        (void)printf(", %llu of them aliases", (unsigned long long)f->aliases);
    if (ckp_checkpoint_shards(f->ck) > 1)
        (void)printf("; saved by %zu writers", ckp_checkpoint_shards(f->ck));
    (void)printf("; format %u.%u; content %s\n", f->i.format_major, f->i.format_minor, f->i.content_id);
    if (f->i.is_delta) {
        (void)printf("delta number %u after its key; base %s\n", f->i.chain, f->i.base_id);
        for (size_t i = 0; i < f->n_chain; i++) {
            (void)printf("  %s ", f->chain[i].is_delta ? "delta" : "key  ");
            cli_safe(stdout, f->chain[i].dir);
            (void)putchar('\n');
        }
    }
    if (ckp_checkpoint_base_model(f->ck) != NULL) {
        (void)fputs("base model: ", stdout);
        cli_safe(stdout, ckp_checkpoint_base_model(f->ck));
        (void)putchar('\n');
    }
    print_metrics(f);
    cli_recorded_print(f->ck);
    (void)putchar('\n');
    print_roles(f);
    if (f->matched)
        (void)puts("  (roles by names and shapes: a lossless file stores none)");
    cli_settings_print(&f->set);
    print_errors(f);
}

static void
json_role(cli_json *j, const facts *f, int r)
{
    const uint64_t params = f->i.params_by_role[r];
    cli_json_open(j, ckp_role_name((ckp_role)r), '{');
    cli_json_u64(j, "params", params);
    cli_json_u64(j, "raw_bytes", f->i.raw_by_role[r]);
    cli_json_u64(j, "stored_bytes", f->i.stored_by_role[r]);
    cli_json_num(j, "bits_per_param", 8.0 * (double)f->i.stored_by_role[r] / (double)params);
    cli_json_close(j, '}');
}

static void
print_json(const facts *f)
{
    cli_json j = {0};

    cli_json_open(&j, NULL, '{');
    cli_json_str(&j, "path", f->path);
    cli_json_str(&j, "kind", f->i.is_delta ? "delta" : "key");
    cli_json_str(&j, "profile", profile_of(f));
    cli_json_bool(&j, "lossy", f->i.lossy);
    if (f->place->is_run) {
        cli_json_str(&j, "dir", f->i.name);
        cli_json_u64(&j, "step", f->i.step);
        cli_json_u64(&j, "sequence", f->i.sequence);
        cli_json_u64(&j, "restore_count", f->i.restore_count);
        cli_json_u64(&j, "writers", ckp_checkpoint_shards(f->ck));
        json_metrics(&j, f);
    }
    cli_settings_json(&j, &f->set, f->ck);
    char version[32];
    (void)snprintf(version, sizeof version, "%u.%u", f->i.format_major, f->i.format_minor);
    cli_json_str(&j, "format", version);
    cli_json_str(&j, "content", f->i.content_id);
    cli_json_str(&j, "base", f->i.is_delta ? f->i.base_id : NULL);
    cli_json_str(&j, "base_model", ckp_checkpoint_base_model(f->ck));
    cli_json_str(&j, "dropped", ckp_checkpoint_dropped(f->ck));
    cli_json_u64(&j, "chain_length", f->i.chain);
    cli_json_open(&j, "chain", '[');
    for (size_t i = 0; i < f->n_chain; i++)
        cli_json_str(&j, NULL, f->chain[i].dir);
    cli_json_close(&j, ']');
    cli_json_u64(&j, "tensors", f->tensors);
    cli_json_u64(&j, "aliases", f->aliases);
    cli_json_u64(&j, "params", f->params);
    cli_json_u64(&j, "raw_bytes", f->i.raw_bytes);
    cli_json_u64(&j, "stored_bytes", f->i.stored_bytes);
    cli_json_u64(&j, "overhead_bytes", f->i.overhead_bytes);
    cli_json_num(&j, "ratio", (double)f->i.raw_bytes / (double)f->i.stored_bytes);
    cli_json_num(&j, "bits_per_param", 8.0 * (double)f->i.stored_bytes / (double)f->params);
    cli_json_bool(&j, "roles_matched", f->matched);
    cli_json_open(&j, "roles", '{');
    for (int r = 0; r < CKP_ROLE_COUNT_; r++)
        if (f->i.params_by_role[r] != 0)
            json_role(&j, f, r);
    cli_json_close(&j, '}');
    cli_json_open(&j, "errors", '[');
    for (size_t i = 0; i < f->n_lossy; i++) {
        cli_json_open(&j, NULL, '{');
        cli_json_str(&j, "tensor", f->lossy[i].name);
        cli_json_num(&j, "rms_rel_error", f->lossy[i].rms_rel_error);
        cli_json_num(&j, "max_rel_error", f->lossy[i].max_rel_error);
        cli_json_u64(&j, "nan", f->lossy[i].n_nan);
        cli_json_u64(&j, "inf", f->lossy[i].n_inf);
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    cli_json_close(&j, '}');
}

static int
info(const cli_args *a)
{
    cli_place place;
    facts f = {.path = a->arg[0], .place = &place, .a = a, .i = {.size = sizeof f.i}};

    int code = cli_place_parse(&place, a->arg[0]);
    if (code == CLI_OK)
        code = cli_place_open(&f.ck, &place, a);
    if (code == CLI_OK) {
        ckp_checkpoint_get_info(f.ck, &f.i);
        code = gather_roles(&f);
    }
    if (code == CLI_OK) {
        code = gather_tensors(&f);
    }
    if (code == CLI_OK)
        code = cli_settings_gather(&f.set, f.ck);
    if (code == CLI_OK)
        code = gather_chain(&f);
    if (code == CLI_OK) {
        if (a->json)
            print_json(&f);
        else
            print_human(&f);
    }
    if (code == CLI_OK && !a->json && place.is_run && !place.has_step)
        code = cli_measured_print(place.path, a->verbose);
    free(f.lossy);
    free(f.chain);
    ckp_checkpoint_close(f.ck);
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_info = {
    .name = "info",
    .args = "FILE | RUN[@STEP]",
    .summary = "Describe a file, or a checkpoint of a run",
    .text = "Shows kind, profile, lineage, what each role costs in bits a parameter (of that role; the line \"all\" counts everything stored by\n"
            "parameters of the model), and for lossy tensors the error that was recorded when they were saved. Of a run, the newest checkpoint\n"
            "or that of STEP, with the metrics that were saved with it, the settings it was coded with and, where eval_fn measured it, the loss of\n"
            "live and decoded weights; without STEP, that of the last eight that were measured (-v: all). Lossless files of PyTorch files\n"
            "store no roles: they are found by names and shapes where that is certain. A delta file needs its base.\n"
            "\n"
            "  ckpress info runs/gpt\n"
            "  ckpress info runs/gpt@12000 --json",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_VERBOSE) | CLI_HAS(CLI_OPT_BASE) | CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 1,
    .run = info,
};
