/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command: one table of options, one table of commands, one file a command. Parsing, --help, the man page and the completion are
 * made from the two tables, so they cannot disagree. Everything goes through the public headers.
 */
#ifndef CLI_H
#define CLI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpress/ckpress.h>

/* Exit codes, by family of status: scripts rely on them (see the man page). */
enum {
    CLI_OK = 0,
    CLI_USAGE = 1,          /* the command line, or an argument that makes no sense */
    CLI_FILES = 2,          /* not found, exists, no permission, no space, read or write failed */
    CLI_DATA = 3,           /* damaged, truncated, not such a file, wrong base, unsafe */
    CLI_UNSUPPORTED = 4,    /* a type, feature or format version that this version does not know */
    CLI_BUSY = 5,           /* another writer, a limit or memory */
    CLI_BUG = 6,            /* a bug in ckpress */
    CLI_DIFFERS = 7         /* diff --exit-code: no failure, but a difference */
};

typedef enum cli_opt {
    CLI_OPT_OUTPUT,
    CLI_OPT_FORCE,
    CLI_OPT_BASE,
    CLI_OPT_PROFILE,
    CLI_OPT_QUALITY,
    CLI_OPT_STATES,
    CLI_OPT_TARGET_BITS,
    CLI_OPT_TARGET_RATIO,
    CLI_OPT_MAX_ERROR,
    CLI_OPT_DRY_RUN,
    CLI_OPT_FAST,
    CLI_OPT_BEST,
    CLI_OPT_FORMAT,
    CLI_OPT_AS,
    CLI_OPT_STRUCTURE,
    CLI_OPT_DATA,
    CLI_OPT_DECODE,
    CLI_OPT_MAX_TIME,
    CLI_OPT_SEED,
    CLI_OPT_ONLY,
    CLI_OPT_KEEP_LAST,
    CLI_OPT_KEEP_EVERY,
    CLI_OPT_KEEP_BEST,
    CLI_OPT_MAX_BYTES,
    CLI_OPT_DELETE,
    CLI_OPT_REVERSE,
    CLI_OPT_ALL,
    CLI_OPT_EXIT_CODE,
    CLI_OPT_STEP,
    CLI_OPT_NEWEST,
    CLI_OPT_DROP_OPTIMIZER,
    CLI_OPT_OLDER_THAN,
    CLI_OPT_IN_ORDER,
    CLI_OPT_TO,
    CLI_OPT_MAX_FILE,
    CLI_OPT_THREADS,
    CLI_OPT_JSON,
    CLI_OPT_MAN,
    CLI_OPT_COMPLETION,
    CLI_OPT_PROGRESS,
    CLI_OPT_QUIET,
    CLI_OPT_VERBOSE,
    CLI_OPT_HELP,
    CLI_OPT_COUNT
} cli_opt;
#define CLI_HAS(opt) (UINT64_C(1) << (opt))
/* What every command takes. */
#define CLI_COMMON (CLI_HAS(CLI_OPT_QUIET) | CLI_HAS(CLI_OPT_HELP))

/* One row of the option table. */
typedef struct cli_option {
    char letter;             /* 0: none */
    const char *name;        /* long, without dashes */
    const char *value;       /* what its value is called; NULL: takes none; "[=NAME]": may take one, after "=" only */
    const char *choices;     /* for completion: words, "file", "dir", or NULL */
    const char *help;        /* one line */
} cli_option;
extern const cli_option cli_options[CLI_OPT_COUNT];

/* A parsed command line. Strings point into argv. */
typedef struct cli_args {
    const char *output, *format, *only, *to;
    uint64_t older_than;     /* 0: not given */
    uint64_t max_file;       /* 0: not given */
    const char **base;       /* nearest first; owned */
    size_t n_base;
    const char **arg;        /* owned */
    size_t n_arg;
    ckp_profile profile;
    bool has_profile;        /* one was named */
    ckp_optimizer_states states;
    double quality;
    double target_bits, target_ratio, max_error;   /* 0: none */
    unsigned threads, effort;
    ckp_verify_level level;
    double share, max_seconds;   /* 1 and 0 unless given */
    uint64_t seed;
    ckp_retention rules;
    char *metric;            /* of rules, owned */
    uint64_t *step;          /* owned */
    size_t n_step;
    bool drop_optimizer, in_order, all, as_f32, dry_run, exit_code, force, json, man, newest, completion, progress, quiet, remove, reverse, verbose, has_seed, help;
} cli_args;

typedef struct cli_command {
    const char *name;
    const char *args;        /* as in a usage line */
    const char *summary;     /* one line, no full stop */
    const char *text;        /* paragraphs; lines that begin with two spaces are kept as they are */
    uint64_t options;        /* CLI_HAS(...) of each */
    size_t min_args, max_args;
    int (*run)(const cli_args *a);   /* returns an exit code */
} cli_command;

/* NULL-terminated. */
extern const cli_command *const cli_commands[];
extern const cli_command cli_cmd_compress, cli_cmd_decompress, cli_cmd_plan, cli_cmd_info, cli_cmd_ls, cli_cmd_log, cli_cmd_diff, cli_cmd_verify, cli_cmd_salvage, cli_cmd_repair, cli_cmd_thin, cli_cmd_rebase, cli_cmd_export, cli_cmd_import,
    cli_cmd_extract, cli_cmd_prune, cli_cmd_cp, cli_cmd_report, cli_cmd_bench, cli_cmd_help, cli_cmd_version;
const cli_command *cli_find(const char *name);

/* Parses what follows the command's name. CLI_OK or CLI_USAGE (told on stderr); cli_args_free in either case. */
int cli_parse(cli_args *a, const cli_command *c, int argc, char **argv);
void cli_args_free(cli_args *a);

/* On stdout: all commands, or one. */
void cli_help_all(void);
void cli_help_one(const cli_command *c);
void cli_help_man(void);
void cli_help_completion(void);
extern const char *const cli_exit_text[];   /* "0  ...", by exit code; NULL-terminated */
#endif
