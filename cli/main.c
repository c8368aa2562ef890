/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress COMMAND ...: finds the command, parses for it, runs it. */
#include <string.h>
#include "cli.h"
#include "ui.h"

static int
unknown(const char *name)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (name[0] != '-' && strncmp(cli_commands[i]->name, name, 3) == 0)
            return cli_fail(CLI_USAGE, "no command '%s'; did you mean '%s'? See 'ckpress help'.", name, cli_commands[i]->name);
    return cli_fail(CLI_USAGE, "no command '%s'. See 'ckpress help'.", name);
}

/* Output that did not reach its place is a failure like any other. */
static int
flushed(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK)
        return cli_fail(CLI_FILES, "cannot write to standard output");
    return code;
}

static int
run_command(const cli_command *c, int argc, char **argv)
{
    cli_args a;
    int code = cli_parse(&a, c, argc, argv);

    if (code == CLI_OK && a.help)
        cli_help_one(c);
    else if (code == CLI_OK)
        code = c->run(&a);
    cli_args_free(&a);
    return code;
}

int
main(int argc, char **argv)
{
    if (argc < 2) {
        cli_help_all();
        (void)flushed(CLI_OK);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const cli_command *c = cli_find(name);
    cli_signals_catch();
    return flushed(c != NULL ? run_command(c, argc - 2, argv + 2) : unknown(name));
}
