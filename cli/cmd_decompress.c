/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress decompress */
#include "cli.h"
#include "convert.h"
#include "place.h"

/* The ending depends on what the file was before. */
static char *
unpacked_name(const char *in, const cli_args *a, int *code)
{
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    const ckp_status st = ckp_checkpoint_open_file(&ck, in, a->base, a->n_base, &e);
    *code = cli_told(st, &e);
    char *name = st == CKP_OK ? cli_name_unpacked(in, ck) : NULL;
    ckp_checkpoint_close(ck);
    return name;
}

static int
decompress(const cli_args *a)
{
    static const cli_convert c = {.verb = "decompress", .binary_in = true, .name = unpacked_name, .run = ckp_decompress};
    return cli_convert_all(&c, a);
}

const cli_command cli_cmd_decompress = {
    .name = "decompress",
    .args = "FILE...",
    .summary = "Give compressed files back",
    .text = "Each model.ckp becomes model.safetensors or model.pt, as it was before. With --output, an ending of .pt or .safetensors makes it\n"
            "that kind. A delta needs its base, and the base's own bases, nearest first. From a pipe come lossless files without a base.\n"
            "\n"
            "  ckpress decompress model.ckp\n"
            "  ckpress decompress step3.ckp --base step2.ckp --base step1.ckp -o step3.pt",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_VERBOSE) | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_THREADS) |
               CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = SIZE_MAX,
    .run = decompress,
};
