/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress decompress */
#include "cli.h"
#include "convert.h"

/* The ending depends on what the file was before; a run's newest step is looked up once, so that name and contents belong together. */
static char *
unpacked_name(cli_job *job, const cli_args *a)
{
    ckp_checkpoint *ck = NULL;
    ckp_checkpoint_info i = {.size = sizeof i};
    char *name = NULL;

    job->code = cli_place_open(&ck, &job->place, a);
    if (job->code == CLI_OK && job->place.is_run) {
        ckp_checkpoint_get_info(ck, &i);
        job->place.step = (int64_t)i.step;
        name = cli_name_of_step(job->place.path, i.step);
    } else if (job->code == CLI_OK) {
        name = cli_name_unpacked(job->in, ck);
    }
    ckp_checkpoint_close(ck);
    return name;
}

static ckp_status
decompress_one(const cli_args *a, const cli_job *job, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;

    if (!job->place.is_run)
        return ckp_decompress(job->in, job->out, opt, res, err);
    ckp_status st = ckp_checkpoint_open_run_on(&ck, job->place.path, cli_base_model(a), job->place.step, false, err);
    if (st == CKP_OK)
        st = ckp_checkpoint_export(ck, job->out, opt, res, err);
    ckp_checkpoint_close(ck);
    return st;
}

static int
decompress(const cli_args *a)
{
    static const cli_convert c = {.verb = "decompress", .name = unpacked_name, .run = decompress_one};
    return cli_convert_all(&c, a);
}

const cli_command cli_cmd_decompress = {
    .name = "decompress",
    .args = "FILE|RUN[@STEP]...",
    .summary = "Give compressed files back, or a checkpoint of a run as a file",
    .text = "Each model.ckp becomes model.safetensors or model.pt, as it was before. With --output, an ending of .pt or .safetensors makes it\n"
            "that kind; a safetensors file cannot hold plain values, which are left out then (a note says which). A checkpoint of a run becomes\n"
            "RUN@STEP.pt; without @STEP it is the newest. A delta file needs its base, and the base's own bases, nearest first. From a pipe come lossless files without a base.\n"
            "\n"
            "  ckpress decompress model.ckp\n"
            "  ckpress decompress runs/gpt@12000 --only model -o weights.safetensors\n"
            "  ckpress decompress step3.ckp --base step2.ckp --base step1.ckp -o step3.pt",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_VERBOSE) | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_THREADS) |
               CLI_HAS(CLI_OPT_ONLY) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = SIZE_MAX,
    .run = decompress,
};
