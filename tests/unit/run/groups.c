/* SPDX-License-Identifier: Apache-2.0 */
#include "groups.h"
#include <stdio.h>

void
group_make_models(training *t, unsigned world)
{
    for (unsigned r = 0; r < world; r++) {
        char name[64];
        const uint64_t mat[4] = {40 + 8 * r, 96}, vec[4] = {33};
        t->m[r] = (model){0};
        (void)snprintf(name, sizeof name, "group %u", r);
        t->m[r].rng = test_rng_new(name);
        (void)snprintf(name, sizeof name, "part%u.weight", r);
        model_add_adam(&t->m[r], name, CKP_F32, CKP_F32, mat);
        (void)snprintf(name, sizeof name, "part%u.bias", r);
        model_add_adam(&t->m[r], name, CKP_F32, CKP_F32, vec);
        (void)model_add(&t->m[r], "rng", CKP_ROLE_OTHER, NULL, CKP_I64, (const uint64_t[4]){1});
        ((int64_t *)t->m[r].t[t->m[r].n - 1].data)[0] = 1000 + (int64_t)r;
        t->m[r].step = 10;
    }
}

void
group_free_models(training *t, unsigned world)
{
    for (unsigned r = 0; r < world; r++)
        model_free(&t->m[r]);
}

ckp_status
group_open_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    const ckp_group g = ranks_group(r, rank);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = t->profile;
    o.coding.threads = 1;
    o.key_every = t->key_every;
    o.objects = t->objects[rank];
    o.group = &g;
    return ckp_run_open(&t->run[rank], t->dir, &o, &r->err[rank]);
}

ckp_status
group_close_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    const ckp_status st = ckp_run_close(t->run[rank], &r->err[rank]);
    t->run[rank] = NULL;
    return st;
}

ckp_status
group_save_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.alike = 7;
    const ckp_status st = model_save(t->run[rank], &t->m[rank], &o, &r->err[rank]);
    ckp_save_stats s = {.size = sizeof s};
    ckp_run_stats(t->run[rank], &s);
    t->key[rank] = s.is_key;
    return st;
}

void
group_train(training *t, unsigned world)
{
    for (unsigned r = 0; r < world; r++)
        model_step(&t->m[r]);
}

void
group_all_ok(const ranks *r)
{
    for (unsigned i = 0; i < r->world; i++)
        if (r->status[i] != CKP_OK)
            print_error("rank %u: %s\n", i, r->err[i].text);
    for (unsigned i = 0; i < r->world; i++)
        assert_ok(r->status[i]);
}

/* All train and save. */
void
group_step(ranks *r)
{
    group_train(r->user, r->world);
    ranks_run(r, group_save_rank);
    group_all_ok(r);
}

/* The same answer everywhere, and it names the rank. */
void
group_all_say(const ranks *r, ckp_status want, const char *text)
{
    for (unsigned i = 0; i < r->world; i++) {
        if (r->status[i] != want || strstr(r->err[i].text, text) == NULL)
            print_error("rank %u: status %d: %s\n", i, (int)r->status[i], r->err[i].text);
        assert_status(r->status[i], want);
        assert_non_null(strstr(r->err[i].text, text));
    }
}

/* Restores into a copy of the rank's model, and compares where it must be bit for bit. */
ckp_status
group_restore_rank(ranks *r, unsigned rank)
{
    training *t = r->user;
    model got = {0};
    ckp_checkpoint *ck = NULL;
    ckp_status st = ckp_checkpoint_open(&ck, t->run[rank], t->step, &r->err[rank]);
    t->found[rank][0] = t->notes[rank][0] = '\0';
    t->equal[rank] = false;
    if (st != CKP_OK)
        return st;
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint_get_info(ck, &info);
    (void)snprintf(t->found[rank], sizeof t->found[rank], "%s", info.name);
    (void)snprintf(t->notes[rank], sizeof t->notes[rank], "%s", ckp_checkpoint_notes(ck));
    model_copy(&got, &t->m[rank]);
    model_clear(&got);
    st = model_read(ck, &got, &r->err[rank]);
    t->equal[rank] = st == CKP_OK && model_equal(&got, &t->m[rank]);
    if (st == CKP_OK)
        st = ckp_run_adopt(t->run[rank], ck, &r->err[rank]);
    if (st == CKP_OK) {          /* lossy training goes on from what was restored */
        model_free(&t->m[rank]);
        got.step = info.step;
        t->m[rank] = got;
    } else {
        model_free(&got);
    }
    ckp_checkpoint_close(ck);
    return st;
}

int
group_last_dir(void *user, const ckp_list_entry *e)
{
    if (strcmp(e->health, "ok") == 0)
        (void)snprintf(user, 256, "%s", e->dir);
    return 0;
}

int
group_count_ok(void *user, const ckp_list_entry *e)
{
    *(int *)user += strcmp(e->health, "ok") == 0;
    return 0;
}

