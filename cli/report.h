/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report of a run shows: gathered once, then written as a page or as JSON.
 *
 * Points are checkpoints in the order in which they were saved. A page shows at most REPORT_SLOTS of them: neighbours share a slot, where
 * sizes are means and everything else is the slot's last. Tensors are looked at in at most REPORT_LOOKS checkpoints.
 */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H
#include <ckpress/run_inspect.h>
#include "json.h"

#define REPORT_SLOTS 240
#define REPORT_LOOKS 64
#define REPORT_NAMES 256         /* series of metrics and settings that are followed */
#define REPORT_ODD 100           /* directories that are no checkpoint: more are counted only */
#define REPORT_WIDTHS "/bits"      /* ending of the tensors that say in how many bits a parameter's moments are kept */

/* What the bytes are for. */
enum { REPORT_W, REPORT_M, REPORT_V, REPORT_REST, REPORT_PARTS };
extern const char *const report_part_name[REPORT_PARTS];
extern const char *const report_part_color[REPORT_PARTS];

typedef struct report_tensor {
    const char *name;            /* the report's */
    ckp_role role;
    bool lossy;
    uint64_t numel, stored_bytes;
    double bits, rms_error, max_error;
    uint64_t codes;              /* of an optimizer's NAME/bits: elements of NAME */
    uint8_t width[2];            /* and what it says of m and v; 0: not one, or not known */
} report_tensor;

typedef struct report_point {
    uint64_t step, sequence, stored_bytes, raw_bytes, params, restore_count;
    int64_t saved_unix;
    bool is_delta, whole;        /* whole: its health is ok and its shard could be looked at */
    bool looked;                 /* the fields below are known */
    unsigned chain;
    ckp_profile profile;
    char *dir, *base_dir, *parent_dir;
    char *base_model;            /* of a key; NULL: none */
    char *problem;               /* NULL: none */
    uint64_t part_bytes[REPORT_PARTS];
    uint64_t stored_by_role[CKP_ROLE_COUNT_], overhead_bytes;
    double rms_error[CKP_ROLE_COUNT_], max_error[CKP_ROLE_COUNT_];
    report_tensor *tensor;       /* NULL: not looked at */
    size_t n_tensors;
} report_point;

/* A metric or setting, by point: NaN where a point has none, and where it has a NaN. */
typedef struct report_series {
    char *name;
    double *value;
    bool *has;
} report_series;

typedef struct report_list { report_series *v; size_t n; bool cut; } report_list;

typedef struct report_odd { char *dir, *what; uint64_t step; } report_odd;

typedef struct report {
    const char *path;
    report_point *point;
    size_t n, cap;
    size_t expected;             /* checkpoints when the list was read: decides which are looked into */
    report_list settings, metrics;
    report_odd odd[REPORT_ODD];  /* what only looks like a checkpoint */
    size_t n_odd;                /* all of them */
    char **name;                 /* of tensors, shared by the points */
    size_t n_names, names_cap;
    bool tensors;                /* are looked at */
    size_t no_widths;            /* checkpoints whose widths of resident moments could not be read */
} report;

/* Reads a run; tensors too, or only what manifests and indexes say of whole checkpoints. Exit code, told on stderr. report_free in either case. */
int report_gather(report *r, const char *path, bool tensors);
void report_free(report *r);
/* Part of report_gather: widths of resident moments, where an optimizer has any. Exit code. */
int report_gather_widths(report *r);

/* Name of the run: the last part of its path. */
const char *report_title(const report *r);
/* A series by its name; NULL when no checkpoint has it. */
const report_series *report_find(const report_list *l, const char *name);
/* The point that is the directory `dir`; NULL: none. */
const report_point *report_point_of(const report *r, const char *dir);
/* The value of a series at point i; NaN where it has none. */
double report_value(const report_list *l, const char *name, size_t i);
/* A save of a lossy run whose weights are exact: its last one, or one that missed its budget. */
bool report_is_exact(const report *r, size_t i);
/* Whether a metric is one of ckpress' own measurements. */
bool report_is_own(const char *name);
/* The newest point whose tensors were looked at, and the newest of those whose weights were coded with an error, or the first one; NULL: none. */
const report_point *report_newest(const report *r);
const report_point *report_newest_lossy(const report *r);
/* Checkpoints that were committed since the run began, by the highest sequence. */
uint64_t report_committed(const report *r);
/* Points with a problem. */
size_t report_bad(const report *r);
/* Slots, and the points [*first, *end) of one. */
size_t report_slots(const report *r);
void report_slot(const report *r, size_t slot, size_t *first, size_t *end);
/* NaN without parameters. */
double report_bits(const report_point *p, double bytes);

void report_page(FILE *f, const report *r);
/* Up to the array of checkpoints, which it opens. */
void report_json_begin(cli_json *j, const report *r);
void report_json(const report *r);
/* Parts of the JSON: the fields of point i, inside an object; what is no checkpoint, as an array. */
void report_json_point(cli_json *j, const report *r, size_t i);
void report_json_odd(cli_json *j, const report *r);

/* Parts of the page. report_plots has sections with tables too. */
void report_plots(FILE *f, const report *r);
void report_checkpoint_table(FILE *f, const report *r);
void report_series_table(FILE *f, const report *r, const report_list *l, const char *caption);
/* Errors of tensors in one checkpoint; the largest tensors over steps. */
void report_error_table(FILE *f, const report *r);
void report_size_table(FILE *f, const report *r);
#endif
