/* SPDX-License-Identifier: Apache-2.0 */
/* The disk: nodes, links, unsynced changes, and what a power cut makes of them. */
#include "harness/faultdisk.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

#define SECTOR 512u

void *
fault_alloc(void *old, size_t bytes)
{
    void *p = realloc(old, bytes > 0 ? bytes : 1);
    if (p == NULL) {
        fputs("faultfs: out of memory\n", stderr);
        abort();
    }
    return p;
}

fault_node *
fault_node_new(fault_disk *d, bool is_dir)
{
    fault_node *n = fault_alloc(NULL, sizeof *n);
    memset(n, 0, sizeof *n);
    n->is_dir = is_dir;
    n->next = d->all;
    d->all = n;
    return n;
}

fault_disk *
fault_disk_new(void)
{
    fault_disk *d = fault_alloc(NULL, sizeof *d);
    memset(d, 0, sizeof *d);
    d->root = fault_node_new(d, true);
    return d;
}

void
fault_disk_free(fault_disk *d)
{
    if (d == NULL)
        return;
    for (fault_bucket *b = d->buckets, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(d->late.key);
    free(d->late.data);
    for (fault_node *n = d->all, *next; n != NULL; n = next) {
        next = n->next;
        free(n->data);
        free(n->synced);
        free(n->now.v);
        free(n->durable.v);
        free(n->change);
        free(n);
    }
    free(d);
}

/* ---- directories ---- */

fault_link *
fault_find(const fault_links *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->v[i].name, name) == 0)
            return &l->v[i];
    return NULL;
}

static void
set_name(char dst[FAULT_NAME], const char *src)
{
    if (strlen(src) >= FAULT_NAME)
        abort();
    memset(dst, 0, FAULT_NAME);
    memcpy(dst, src, strlen(src));
}

static void
apply(fault_links *l, const fault_change *c)
{
    fault_link *gone = *c->gone != '\0' ? fault_find(l, c->gone) : NULL;
    if (gone != NULL)
        *gone = l->v[--l->n];
    if (*c->come == '\0')
        return;
    fault_link *there = fault_find(l, c->come);
    if (there == NULL) {
        l->v = fault_alloc(l->v, (l->n + 1) * sizeof *l->v);
        there = &l->v[l->n++];
        set_name(there->name, c->come);
    }
    there->node = c->node;
}

void
fault_change_dir(fault_node *dir, const char *gone, const char *come, fault_node *node)
{
    dir->change = fault_alloc(dir->change, (dir->n_changes + 1) * sizeof *dir->change);
    fault_change *c = &dir->change[dir->n_changes++];
    set_name(c->gone, gone);
    set_name(c->come, come);
    c->node = node;
    apply(&dir->now, c);
}

static void
copy_links(fault_links *dst, const fault_links *src)
{
    dst->v = fault_alloc(dst->v, src->n * sizeof *dst->v);
    if (src->n > 0)
        memcpy(dst->v, src->v, src->n * sizeof *dst->v);
    dst->n = src->n;
}

void
fault_sync_node(fault_node *n)
{
    if (n->dropped)
        return;
    if (n->is_dir) {
        copy_links(&n->durable, &n->now);
        n->n_changes = 0;
        return;
    }
    n->synced = fault_alloc(n->synced, n->len);
    if (n->len > 0)
        memcpy(n->synced, n->data, n->len);
    n->synced_len = n->len;
}

fault_node *
fault_walk(const fault_disk *d, const char *name, const char **leaf)
{
    fault_node *dir = d->root;
    for (const char *slash; (slash = strchr(name, '/')) != NULL; name = slash + 1) {
        char part[FAULT_NAME] = {0};
        if ((size_t)(slash - name) >= sizeof part)
            return NULL;
        memcpy(part, name, (size_t)(slash - name));
        const fault_link *l = fault_find(&dir->now, part);
        if (l == NULL || !l->node->is_dir)
            return NULL;
        dir = l->node;
    }
    *leaf = name;
    return dir;
}

fault_node *
fault_lookup(const fault_disk *d, const char *name)
{
    const char *leaf;
    if (*name == '\0')
        return d->root;
    const fault_node *dir = fault_walk(d, name, &leaf);
    const fault_link *l = dir == NULL ? NULL : fault_find(&dir->now, leaf);
    return l == NULL ? NULL : l->node;
}

/* ---- power cut ---- */

static uint64_t
draw(uint64_t *s)
{
    uint64_t z = *s += UINT64_C(0x9e3779b97f4a7c15);       /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Torn: a prefix of the changes. Reordered: any subset of them, in order. */
static void
crash_dir(fault_node *n, fault_fate fate, uint64_t *s)
{
    const size_t cut = fate == FATE_TORN ? (size_t)(draw(s) % (n->n_changes + 1)) : 0;
    for (size_t i = 0; i < n->n_changes && !n->dropped; i++)
        if (fate == FATE_ALL || (fate == FATE_TORN && i < cut) || (fate == FATE_REORDERED && draw(s) % 2 != 0))
            apply(&n->durable, &n->change[i]);
    copy_links(&n->now, &n->durable);
    n->n_changes = 0;
    n->dropped = false;
}

/* Torn: a prefix of what came after the sync, then nothing, or zeros up to the length. Reordered: any sectors, others zero. */
static void
crash_file(fault_node *n, fault_fate fate, uint64_t *s)
{
    const size_t old = n->synced_len;
    if (fate == FATE_NONE || n->dropped || n->len == old) {
        n->len = old;
        if (old > 0)
            memcpy(n->data, n->synced, old);
    } else if (fate == FATE_TORN) {
        const size_t cut = old + (size_t)(draw(s) % (n->len - old + 1));
        if (draw(s) % 2 != 0)
            n->len = cut;
        else
            memset(n->data + cut, 0, n->len - cut);
    } else if (fate == FATE_REORDERED) {
        for (size_t at = old; at < n->len; at += SECTOR)
            if (draw(s) % 2 != 0)
                memset(n->data + at, 0, n->len - at < SECTOR ? n->len - at : SECTOR);
    }
    n->dropped = false;
    fault_sync_node(n);
}

static void
come_back(fault_disk *d)
{
    d->generation++;
    d->off = false;
    fault_arm(d, FAULT_NONE, 0, false);
}

void
fault_restart(fault_disk *d)
{
    come_back(d);
}

void
fault_reboot(fault_disk *d, fault_fate fate, uint64_t seed)
{
    uint64_t s = seed;
    for (fault_node *n = d->all; n != NULL; n = n->next) {
        if (n->is_dir)
            crash_dir(n, fate, &s);
        else
            crash_file(n, fate, &s);
    }
    come_back(d);
}

/* ---- by hand ---- */

static fault_node *
must_find(const fault_disk *d, const char *name)
{
    fault_node *n = fault_lookup(d, name);
    if (n == NULL) {
        fprintf(stderr, "faultfs: no file '%s'\n", name);
        abort();
    }
    return n;
}

void
fault_flip(fault_disk *d, const char *name, uint64_t byte, uint8_t mask)
{
    fault_node *n = must_find(d, name);
    if (byte >= n->len)
        abort();
    n->data[byte] ^= mask;
    fault_sync_node(n);
}

void
fault_truncate(fault_disk *d, const char *name, uint64_t size)
{
    fault_node *n = must_find(d, name);
    if (size > n->len)
        abort();
    n->len = (size_t)size;
    fault_sync_node(n);
}

void
fault_remove(fault_disk *d, const char *name)
{
    const char *leaf = NULL;
    (void)must_find(d, name);
    fault_node *dir = fault_walk(d, name, &leaf);
    fault_change_dir(dir, leaf, "", NULL);
    fault_sync_node(dir);
}

void
fault_write(fault_disk *d, const char *name, const void *p, size_t n)
{
    const char *leaf = NULL;
    fault_node *dir = fault_walk(d, name, &leaf);
    if (dir == NULL)
        abort();
    fault_node *f = fault_node_new(d, false);
    f->data = fault_alloc(NULL, n);
    if (n > 0)
        memcpy(f->data, p, n);
    f->len = n;
    fault_sync_node(f);
    fault_change_dir(dir, "", leaf, f);
    fault_sync_node(dir);
}

bool
fault_exists(const fault_disk *d, const char *name)
{
    return fault_lookup(d, name) != NULL;
}

/* Order of entries must not count: sums of hashes do not know it. */
static uint64_t
digest(const fault_node *n)
{
    uint64_t sum = 1;
    if (!n->is_dir)
        return ckpi_hash64(n->data, n->len);
    for (size_t i = 0; i < n->now.n; i++) {
        const uint64_t pair[2] = {ckpi_hash64(n->now.v[i].name, strlen(n->now.v[i].name)), digest(n->now.v[i].node)};
        sum += ckpi_hash64(pair, sizeof pair);
    }
    return sum;
}

uint64_t
fault_digest(const fault_disk *d)
{
    return digest(d->root);
}
