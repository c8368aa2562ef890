/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of faultfs: the disk itself (faultdisk.c) and the file system over it (faultfs.c). */
#ifndef CKP_TESTS_FAULTDISK_H
#define CKP_TESTS_FAULTDISK_H
#include "harness/faultfs.h"

#define FAULT_NAME 160

typedef struct fault_node fault_node;

typedef struct fault_link {
    char name[FAULT_NAME];
    fault_node *node;
} fault_link;

typedef struct fault_links {
    fault_link *v;
    size_t n;
} fault_links;

/* One unsynced change of a directory: `gone` disappears, `come` appears as node; "" for neither. A rename is both, at once. */
typedef struct fault_change {
    char gone[FAULT_NAME];
    char come[FAULT_NAME];
    fault_node *node;
} fault_change;

struct fault_node {
    bool is_dir;
    /* file */
    uint8_t *data;
    size_t len;
    uint8_t *synced;
    size_t synced_len;
    bool dropped;               /* a sync failed: what was not durable then never will be */
    /* directory */
    fault_links now, durable;
    fault_change *change;
    size_t n_changes;
    fault_node *next;           /* of all nodes of the disk */
};

/* What an object store's callbacks are called with. Of the disk, which frees them. */
typedef struct fault_bucket {
    struct fault_bucket *next;
    fault_disk *disk;
    unsigned generation;
} fault_bucket;

/* A put that is on its way. */
typedef struct fault_late {
    char *key;                  /* NULL: none */
    uint8_t *data;
    size_t len;
    bool replace;
    unsigned calls;             /* until it arrives */
} fault_late;

typedef enum fault_what { FAULT_OTHER, FAULT_SPACE, FAULT_WRITE, FAULT_SYNC } fault_what;

struct fault_disk {
    fault_node *all;
    fault_node *root;
    unsigned generation;        /* of mounts */
    fault_kind kind;
    uint64_t at, calls;
    bool lasting, off;
    unsigned fired;
    bool objects;               /* it is an object store */
    fault_bucket *buckets;
    bool due;                   /* FAULT_LOST and what follows it: of the call at hand */
    fault_late late;
    unsigned late_by;
    unsigned slow_ms;
};

/*
 * CKP_OK: do the call (it may be the last before the power goes). Everything else is the call's result, and it did nothing (but a short
 * write, which its caller does).
 */
ckp_status fault_gate(fault_disk *d, unsigned generation, fault_what w, bool *short_write, ckp_error *err);
ckpi_fs *fault_mount_objects(fault_disk *d);
void *fault_alloc(void *old, size_t bytes);
fault_node *fault_node_new(fault_disk *d, bool is_dir);
fault_link *fault_find(const fault_links *l, const char *name);
/* Applies to what programs see, and notes it as unsynced. */
void fault_change_dir(fault_node *dir, const char *gone, const char *come, fault_node *node);
void fault_sync_node(fault_node *node);
/* The directory of a name and its last component; NULL when a directory on the way is missing. */
fault_node *fault_walk(const fault_disk *d, const char *name, const char **leaf);
fault_node *fault_lookup(const fault_disk *d, const char *name);
#endif
