/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who does what of a file, and when: groups are coded in parallel, a few ahead of their frames, which one thread at a time writes in order.
 *
 * A thread of the lowest priority holds a group for as long as the scheduler does not let it run. So nobody waits for another thread but for a place to put
 * a coded group, and where a file takes much longer than its threads' own time would be, a thread of usual priority helps (docs/decisions/0032).
 */
#ifndef CKPI_ENGINE_FLOW_H
#define CKPI_ENGINE_FLOW_H
#include <pthread.h>
#include "engine/engine.h"

typedef enum ckpi_part {
    CKPI_PART_PASS,              /* of a serial pass: on the calling thread, in order */
    CKPI_PART_CODE,              /* on any thread, several groups at a time */
    CKPI_PART_WRITE              /* on the calling thread, or the helper's, in order */
} ckpi_part;

/* What is done, to which group, with what. */
typedef struct ckpi_flow_step {
    ckpi_part part;
    size_t group, slot;          /* a group has one slot from its pass, or its coding, to its write */
    ckpi_scratch *ws;
    uint64_t work;               /* CODE sets it: any measure of how much it was, the same for all groups ... */
    uint64_t held;               /* ... and the bytes that wait for their write from then on */
} ckpi_flow_step;

typedef struct ckpi_late ckpi_late;

typedef struct ckpi_flow {
    size_t groups, slots;
    size_t more_slots;           /* for a file that is late */
    uint64_t work;               /* of all groups */
    bool serial_pass;
    ckp_status (*step)(void *user, ckpi_flow_step *step, ckp_error *err);
    void *user;
    ckpi_late *late;             /* who may help; NULL: nobody */
} ckpi_flow;

/* Until all groups are written or one has failed: the lowest of those that did gives the error. */
CKP_MUST_USE ckp_status ckpi_flow_run(ckpi_ctx *ctx, const ckpi_flow *flow, ckp_error *err);

/*
 * For a thread that waits while others write a file: from when the file is late on it codes and writes groups too. The file's time alone is `before`, and what
 * its threads need with the processors of this process for themselves. It is late when it is to end after `ends_by` times its time alone, as fast as it was so far and also if
 * all that is left were the helper's; and when it has taken `at_least` seconds, and `from` times its time alone. Seconds of writes that waited for a device are
 * not counted.
 *
 * As long as somebody helps, writes are the helper's, and so are the last groups; and more groups than usual may be coded and not yet written: as many as there
 * are slots, and up to `room` bytes in the slots that are only for this.
 */
struct ckpi_late {
    double before;               /* seconds that it has taken already; 0 unless set, the others have usual values */
    double at_least, from, ends_by;
    uint64_t room;
    double cpu;                  /* out: seconds of processor that it took */
    pthread_mutex_t lock;        /* guards all below */
    pthread_cond_t moved;        /* it is over, or the helper has left the file */
    struct ckpi_flow_state *flow;   /* NULL: nothing is being coded */
    bool inside, over;
    ckpi_scratch *ws;            /* the helper's alone */
};
void ckpi_late_init(ckpi_late *l);
void ckpi_late_destroy(ckpi_late *l);
/* Returns after ckpi_late_over, which another thread calls when the file is done. */
void ckpi_late_help(ckpi_late *l);
void ckpi_late_over(ckpi_late *l);
#endif
