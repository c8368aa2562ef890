/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress help and ckpress version. */
#include "cli.h"
#include "ui.h"

static int
help(const cli_args *a)
{
    if (a->man)
        cli_help_man();
    else if (a->completion)
        cli_help_completion();
    else if (a->n_arg == 0)
        cli_help_all();
    else {
        const cli_command *c = cli_find(a->arg[0]);
        if (c == NULL)
            return cli_fail(CLI_USAGE, "no command '%s'. See 'ckpress help'.", a->arg[0]);
        cli_help_one(c);
    }
    return CLI_OK;
}

const cli_command cli_cmd_help = {
    .name = "help",
    .args = "[COMMAND]",
    .summary = "Print help: all commands, or one",
    .text = "With --man, the manual page of all commands; with --completion, a completion for bash:\n"
            "  ckpress help --completion > ~/.local/share/bash-completion/completions/ckpress",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_MAN) | CLI_HAS(CLI_OPT_COMPLETION),
    .max_args = 1,
    .run = help,
};

static int
version(const cli_args *a)
{
    (void)a;
    (void)printf("ckpress %s\n", ckp_version());
    return CLI_OK;
}

const cli_command cli_cmd_version = {
    .name = "version",
    .args = "",
    .summary = "Print the version",
    .text = "Also ckpress --version.",
    .options = CLI_COMMON,
    .run = version,
};
