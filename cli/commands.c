/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands, in the order in which people meet them. */
#include <string.h>
#include "cli.h"

const cli_command *const cli_commands[] = {
    &cli_cmd_compress, &cli_cmd_decompress, &cli_cmd_plan, &cli_cmd_info, &cli_cmd_ls, &cli_cmd_log, &cli_cmd_diff, &cli_cmd_verify, &cli_cmd_extract, &cli_cmd_export, &cli_cmd_import,
    &cli_cmd_report,
    &cli_cmd_cp, &cli_cmd_prune, &cli_cmd_thin, &cli_cmd_rebase, &cli_cmd_repair, &cli_cmd_salvage, &cli_cmd_bench,
    &cli_cmd_help, &cli_cmd_version, NULL,
};

const cli_command *
cli_find(const char *name)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}
