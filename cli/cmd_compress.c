/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress compress */
#include "cli.h"
#include "convert.h"
#include "plan.h"

static char *
packed_name(cli_job *job, const cli_args *a)
{
    (void)a;
    return cli_name_packed(job->in);
}

static void
tell_if_missed(const cli_args *a, const cli_job *job, const ckp_plan *p)
{
    ckp_plan_info info = {.size = sizeof info};
    cli_text t;

    ckp_plan_get_info(p, &info);
    if (!info.met && !a->quiet)
        cli_note("%s: no plan gives %s; this is the nearest", job->in, cli_budget_text(&t, a));
}

static ckp_status
compress_file(const cli_args *a, const cli_job *job, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    ckp_convert_options o = *opt;
    ckp_plan *p = NULL;
    ckp_status st = CKP_OK;

    o.dry_run = a->dry_run;
    if (cli_has_budget(a)) {
        st = cli_plan_file(&p, a, job->in, opt->coding.progress, opt->coding.progress_user, NULL, err);
        if (st == CKP_OK)
            tell_if_missed(a, job, p);
        o.coding.steps = ckp_plan_steps(p, &o.coding.n_steps);
    }
    if (st == CKP_OK)
        st = ckp_compress(job->in, job->out, &o, res, err);
    ckp_plan_free(p);
    return st;
}

static int
compress(const cli_args *a)
{
    static const cli_convert c = {.verb = "compress", .packs = true, .name = packed_name, .run = compress_file};
    const int code = cli_has_budget(a) ? cli_check_budget(a) : CLI_OK;
    return code == CLI_OK ? cli_convert_all(&c, a) : code;
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
            "--target-bits, --target-ratio and --max-error choose a step for every weight ('ckpress plan' shows them); the profile is weights\n"
            "then, unless one is named. --dry-run codes everything, so that the size it tells is the size that it would be.\n"
            "\n"
            "  ckpress compress model.safetensors\n"
            "  ckpress compress step2.pt --base step1.ckp -o step2.ckp\n"
            "  ckpress compress model.safetensors --target-bits 4\n"
            "  curl -s $URL | ckpress compress - > model.ckp",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_VERBOSE) | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_PROFILE) |
               CLI_HAS(CLI_OPT_QUALITY) | CLI_HAS(CLI_OPT_STATES) | CLI_HAS(CLI_OPT_TARGET_BITS) | CLI_HAS(CLI_OPT_TARGET_RATIO) | CLI_HAS(CLI_OPT_MAX_ERROR) |
               CLI_HAS(CLI_OPT_DRY_RUN) | CLI_HAS(CLI_OPT_FAST) | CLI_HAS(CLI_OPT_BEST) | CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON) |
               CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = SIZE_MAX,
    .run = compress,
};
