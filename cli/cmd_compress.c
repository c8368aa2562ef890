/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress compress */
#include "cli.h"
#include "convert.h"

static char *
packed_name(cli_job *job, const cli_args *a)
{
    (void)a;
    return cli_name_packed(job->in);
}

static ckp_status
compress_file(const cli_job *job, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    return ckp_compress(job->in, job->out, opt, res, err);
}

static int
compress(const cli_args *a)
{
    static const cli_convert c = {.verb = "compress", .packs = true, .name = packed_name, .run = compress_file};
    return cli_convert_all(&c, a);
}

const cli_command cli_cmd_compress = {
    .name = "compress",
    .args = "FILE...",
    .summary = "Compress safetensors and PyTorch files",
    .text = "Each model.safetensors, model.pt, model.pth, model.ckpt or model.bin becomes model.ckp beside it; the input stays. What a file is, is\n"
            "found by its contents. Lossless, the default, gives a safetensors file back byte for byte, and of a PyTorch file every tensor\n"
            "and plain value. With --base, only what differs from another .ckp is stored; the same base is needed to decompress.\n"
            "The profiles resume and small are lossy and made to go on training from; they need the optimizer state in the file.\n"
            "weights codes the weights alone, lossily, to pass them on; what optimizers keep for each parameter is left out.\n"
            "\n"
            "  ckpress compress model.safetensors\n"
            "  ckpress compress step2.pt --base step1.ckp -o step2.ckp\n"
            "  curl -s $URL | ckpress compress - > model.ckp",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_VERBOSE) | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_PROFILE) |
               CLI_HAS(CLI_OPT_QUALITY) | CLI_HAS(CLI_OPT_FAST) | CLI_HAS(CLI_OPT_BEST) | CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON) |
               CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = SIZE_MAX,
    .run = compress,
};
