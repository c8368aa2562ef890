/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress extract: one tensor, or a slice of it, reading only the chunks that hold it. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "array.h"
#include "output.h"
#include "place.h"
#include "slice.h"

/* What is read in one go. Chunks hold at most so many elements, so a window that ends at a multiple decodes none twice. */
#define WINDOW (UINT64_C(1) << 20)
#define SLICE_ROOM 60            /* of a slice in a file's name; beyond it a number that stands for all of it */

typedef struct extraction {
    const cli_args *a;
    ckp_checkpoint *ck;
    uint32_t index;
    ckp_tensor_info t;
    cli_slice s;
    bool sliced;
    ckp_dtype out_dtype;     /* as stored, or f32 with --as */
    cli_format format;
    cli_progress p;
} extraction;

/* "NAME[slice]", unless a tensor has just that name. */
static int
find(extraction *x, const char *arg)
{
    const char *open = strrchr(arg, '[');
    ckp_error e = {0};

    x->index = ckp_checkpoint_find(x->ck, arg);
    x->sliced = x->index == UINT32_MAX && open != NULL && cli_ends_with(arg, "]");
    if (x->sliced) {
        char *name = cli_copy(arg);
        name[open - arg] = '\0';
        x->index = ckp_checkpoint_find(x->ck, name);
        free(name);
    }
    if (x->index == UINT32_MAX)
        return cli_fail(CLI_FILES, "%s: no tensor of that name; 'ckpress ls' lists them.", arg);
    const ckp_status st = ckp_checkpoint_tensor(x->ck, x->index, &x->t, &e);
    if (st != CKP_OK)
        return cli_told(st, &e);
    if (x->t.ndim > CLI_MAX_DIMS)
        return cli_fail(CLI_UNSUPPORTED, "%s has %u dimensions.", arg, x->t.ndim);
    if (x->a->as_f32 && !cli_widens(x->t.dtype))
        return cli_fail(CLI_UNSUPPORTED, "%s is %s: --as f32 takes bf16, f16 and f32.", x->t.name, ckp_dtype_name(x->t.dtype));
    x->out_dtype = x->a->as_f32 ? CKP_F32 : x->t.dtype;
    cli_slice_all(&x->s, x->t.ndim, x->t.shape);
    if (x->s.elements != x->t.numel)
        return cli_fail(CLI_UNSUPPORTED, "%s: this shard holds a part of it: extract it from the run, which has all shards.", x->t.name);
    return x->sliced ? cli_slice_parse(&x->s, open + 1, strlen(open) - 2) : CLI_OK;
}

static int
choose_format(extraction *x, const char *out)
{
    const char *name = x->a->format;
    const bool npy = name != NULL ? strcmp(name, "npy") == 0 : cli_ends_with(out, ".npy");
    const bool st = name != NULL ? strcmp(name, "safetensors") == 0 : cli_ends_with(out, ".safetensors");

    x->format = npy ? CLI_FORMAT_NPY : st ? CLI_FORMAT_SAFETENSORS : CLI_FORMAT_BIN;
    if (!cli_format_holds(x->format, x->out_dtype))
        return cli_fail(CLI_UNSUPPORTED, "%s is %s, which %s files cannot hold; %stry %s.", x->t.name, ckp_dtype_name(x->t.dtype),
                        npy ? "npy" : "safetensors", cli_widens(x->t.dtype) ? "--as f32 widens it, or " : "",
                        npy ? "safetensors or bin" : "npy or bin");
    return CLI_OK;
}

/* "layer/0.weight" and [3:5, 1] -> "layer_0.weight[3:5,1].npy": no name leaves the directory, no two slices have the same. */
static char *
default_name(const extraction *x)
{
    const char *ending = cli_format_holds(CLI_FORMAT_NPY, x->out_dtype)           ? ".npy"
                         : cli_format_holds(CLI_FORMAT_SAFETENSORS, x->out_dtype) ? ".safetensors"
                                                                                  : ".bin";
    const size_t n = strlen(x->t.name) < 180 ? strlen(x->t.name) : 180;
    char *out = cli_alloc(n + SLICE_ROOM + 16), part[SLICE_ROOM];

    if (x->sliced)
        cli_slice_text(&x->s, part, sizeof part);
    else
        part[0] = '\0';
    (void)memcpy(out, x->t.name, n);
    for (size_t i = 0; i < n; i++)
        if (out[i] == '/' || (unsigned char)out[i] < 0x20 || (i == 0 && (out[i] == '.' || out[i] == '-')))
            out[i] = '_';
    (void)snprintf(out + n, SLICE_ROOM + 16, "%s%s", part, ending);
    return out;
}

/* ---- elements ------------------------------------------------------------------------------------------------------ */

typedef struct window { uint8_t *bytes, *wide; uint64_t first, end, last; uint64_t done; } window;

static uint64_t
bytes_of(const extraction *x, uint64_t elements)
{
    return elements * ckp_dtype_bits(x->t.dtype) / 8;
}

/* Elements from `first` to at most `end`, from the window or read into it; *n says how many. */
static int
fetch(const extraction *x, window *w, uint64_t first, uint64_t end, uint64_t *n)
{
    ckp_error e = {0};

    if (first < w->first || first >= w->end) {
        const uint64_t edge = (first / WINDOW + 1) * WINDOW;
        w->first = first;
        w->end = edge < w->last ? edge : w->last;
        const ckp_status st = ckp_checkpoint_read_range(x->ck, x->index, first, w->end - first, w->bytes, &e);
        if (st != CKP_OK)
            return cli_told(st, &e);
    }
    *n = (w->end < end ? w->end : end) - first;
    return CLI_OK;
}

static int
put_elements(const extraction *x, const window *w, cli_output *o, const uint8_t *p, uint64_t n)
{
    if (x->out_dtype == x->t.dtype)
        return cli_output_put(o, p, (size_t)bytes_of(x, n));
    cli_widen(x->t.dtype, w->wide, p, (size_t)n);
    return cli_output_put(o, w->wide, (size_t)n * 4);
}

static int
copy_run(extraction *x, window *w, cli_output *o, uint64_t first, uint64_t count)
{
    const uint64_t end = first + count;
    int code = CLI_OK;

    for (uint64_t at = first; code == CLI_OK && at < end;) {
        uint64_t n = 0;
        code = fetch(x, w, at, end, &n);
        if (code == CLI_OK)
            code = put_elements(x, w, o, w->bytes + bytes_of(x, at - w->first), n);
        at += n;
        w->done += n;
        if (code == CLI_OK && cli_progress_step(&x->p, bytes_of(x, w->done), bytes_of(x, x->s.elements)) != 0)
            code = cli_fail(128 + cli_signal(), "stopped by a signal; nothing was written.");
    }
    return code;
}

static int
copy_elements(extraction *x, cli_output *o)
{
    cli_walk walk;
    window w = {0};
    uint64_t first = 0;
    int code = CLI_OK;

    cli_walk_start(&walk, &x->s);
    /* parts of bytes cannot be picked out of a row: only runs that the library can give as they are */
    if (ckp_dtype_bits(x->t.dtype) % 8 != 0 && walk.left > 1)
        return cli_fail(CLI_UNSUPPORTED, "%s is %s: only slices that are contiguous can be taken of packed elements.", x->t.name,
                        ckp_dtype_name(x->t.dtype));
    for (uint64_t i = 0, at = 0; i < x->s.ndim && x->s.elements != 0; i++) {
        at = at * x->s.dim[i] + x->s.first[i] + x->s.count[i] - 1;
        w.last = at + 1;
    }
    w.last = x->s.ndim == 0 ? 1 : w.last;
    w.bytes = cli_alloc((size_t)bytes_of(x, WINDOW));
    w.wide = cli_alloc(x->out_dtype != x->t.dtype ? (size_t)WINDOW * 4 : 1);
    while (code == CLI_OK && cli_walk_next(&walk, &first))
        code = copy_run(x, &w, o, first, walk.run);
    free(w.bytes);
    free(w.wide);
    return code;
}

static int
write_out(extraction *x, const char *out)
{
    const cli_array array = {x->t.name, x->out_dtype, x->s.out_ndim, x->s.out, x->s.elements * ckp_dtype_bits(x->out_dtype) / 8};
    cli_output o = {0};
    size_t len = 0;
    char *head = NULL;

    int code = cli_output_open(&o, out, x->a->force);
    if (code == CLI_OK) {
        head = cli_array_head(x->format, &array, &len);
        code = cli_output_put(&o, head, len);
    }
    cli_progress_start(&x->p, x->a, x->t.name);
    if (code == CLI_OK)
        code = copy_elements(x, &o);
    (void)cli_progress_end(&x->p);
    if (code == CLI_OK)
        code = cli_output_commit(&o);
    cli_output_free(&o);
    free(head);
    return code;
}

/* Whether the tensor comes from that file: it or a base of it is not written over. */
static bool
reads(const cli_args *a, const char *out)
{
    bool is = cli_same_file(a->arg[0], out);
    for (size_t i = 0; i < a->n_base; i++)
        is = is || cli_same_file(a->base[i], out);
    return is;
}

static int
write_named(extraction *x)
{
    const bool named = x->a->output != NULL && !cli_output_is_dir(x->a);
    char *made = default_name(x), *out = cli_output_path(x->a, made);

    int code = out != NULL ? choose_format(x, out) : CLI_FILES;
    if (code == CLI_OK && strcmp(out, "-") == 0 && isatty(STDOUT_FILENO) == 1 && !x->a->force)
        code = cli_fail(CLI_USAGE, "standard output is a terminal: binary data is written to it with -f only.");
    if (code == CLI_OK && reads(x->a, out))
        code = cli_fail(CLI_USAGE, "%s: the tensor is in it, or in what is based on it.", out);
    if (code == CLI_OK)
        code = write_out(x, out);
    if (code == CLI_OK && !x->a->quiet && !named)
        cli_note("written to %s", out);
    free(made);
    free(out);
    return code;
}

static int
extract(const cli_args *a)
{
    extraction x = {.a = a, .t = {.size = sizeof x.t}};
    cli_place place;

    int code = cli_place_parse(&place, a->arg[0]);
    if (code == CLI_OK)
        code = cli_place_open(&x.ck, &place, a);
    if (code == CLI_OK)
        code = find(&x, a->arg[1]);
    if (code == CLI_OK)
        code = write_named(&x);
    ckp_checkpoint_close(x.ck);
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_extract = {
    .name = "extract",
    .args = "FILE|RUN[@STEP] TENSOR[SLICE]",
    .summary = "Write one tensor, or a slice of it, to a file",
    .text = "SLICE is as in Python, without steps: [1000:1010], [:, 3], [-1]. Only the chunks that hold it are read. The ending of --output\n"
            "chooses the format: .npy, .safetensors, anything else the elements alone; --format does whatever the ending. Without --output,\n"
            "the file is named after tensor and slice and is .npy, or .safetensors for types that numpy lacks, such as bf16; --as f32 widens\n"
            "those to what .npy can hold.\n"
            "\n"
            "  ckpress extract model.ckp 'wte.weight[1000:1010]' -o rows.npy\n"
            "  ckpress extract runs/gpt@12000 wte.weight --format bin -o - | xxd | head",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORMAT) | CLI_HAS(CLI_OPT_AS) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 2,
    .max_args = 2,
    .run = extract,
};
