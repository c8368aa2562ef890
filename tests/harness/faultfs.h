/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk in memory that a test can fail, fill up, or cut from power at any call, behind the same ckpi_fs as a real one.
 *
 * What it models: each file has the data that was written and the data that was synced; each directory has the entries that
 * programs see, those that were synced, and the list of changes in between. A power cut keeps what was synced and, of the
 * rest, what the fate says. It is as unkind as POSIX allows: syncing a file does not sync its name; changes of two
 * directories are independent; and after a failed sync the data counts as lost although later syncs succeed.
 *
 * The same disk serves as an object store: each callback is a call, objects are durable when they are there, and directories are names only.
 */
#ifndef CKP_TESTS_FAULTFS_H
#define CKP_TESTS_FAULTFS_H
#include "os/os.h"

typedef struct fault_disk fault_disk;

/* Aborts on lack of memory, as all of this file does. */
fault_disk *fault_disk_new(void);
/* Mounts of it are file systems over objects (src/objects). */
fault_disk *fault_objects_new(void);
void fault_disk_free(fault_disk *d);
/* A file system on the disk; any number of them see the same files. Stale (every call fails) after a restart or reboot. */
ckpi_fs *fault_mount(fault_disk *d);

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_EIO,      /* the call fails and does nothing; a failed sync loses the data for good */
    FAULT_ENOSPC,   /* likewise; only calls that need space count: open for writing, write, mkdir */
    FAULT_SHORT,    /* only writes count: half of the bytes, then CKP_ENOSPC */
    FAULT_KILL,     /* the process is dead before the call: it and all later calls of existing mounts do nothing */
    FAULT_POWER,    /* the call is done, then the power goes: all later calls of existing mounts do nothing */
    /* of object stores only: */
    FAULT_LOST,     /* the call is done, and its answer is lost: CKP_EIO */
    FAULT_LATE,     /* only puts count: CKP_EIO, and it is done all the same, later */
    FAULT_DAMAGE,   /* only puts count: it is done, with a wrong byte */
    FAULT_ORPHAN    /* only puts count: the process is dead, and it is done all the same, later */
} fault_kind;

/* The at-th counting call from now (1: the next) fails. lasting: and so do all counting calls after it. at 0: just count. */
void fault_arm(fault_disk *d, fault_kind kind, uint64_t at, bool lasting);
/* Every call takes so long from now on. */
void fault_slow(fault_disk *d, unsigned ms);
uint64_t fault_calls(const fault_disk *d);      /* counting calls since arm */
unsigned fault_fired(const fault_disk *d);      /* faults since arm: tests prove with it that they tested something */

typedef enum fault_fate { FATE_ALL, FATE_NONE, FATE_TORN, FATE_REORDERED, FATE_COUNT_ } fault_fate;

/* After FAULT_KILL: the system lives on, everything written is there. Disarms. */
void fault_restart(fault_disk *d);
/* After FAULT_POWER: unsynced changes meet their fate. Disarms. */
void fault_reboot(fault_disk *d, fault_fate fate, uint64_t seed);
/* How many calls later: 0: just before the next one. */
void fault_late_by(fault_disk *d, unsigned calls);
/* What is still on its way after FAULT_LATE is there now. */
void fault_arrive(fault_disk *d);

/* Damage by hand, durable at once. Abort when there is no such file. */
void fault_flip(fault_disk *d, const char *name, uint64_t byte, uint8_t mask);
void fault_truncate(fault_disk *d, const char *name, uint64_t size);
void fault_remove(fault_disk *d, const char *name);
void fault_write(fault_disk *d, const char *name, const void *p, size_t n);   /* makes or replaces */
bool fault_exists(const fault_disk *d, const char *name);
/* Names and contents: equal when two disks look alike to a program. */
uint64_t fault_digest(const fault_disk *d);
#endif
