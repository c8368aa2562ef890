/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, and parsing by it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "ui.h"

const cli_option cli_options[CLI_OPT_COUNT] = {
    [CLI_OPT_OUTPUT] = {'o', "output", "PATH", "file", "Write to PATH; - is standard output. A directory: into it, under the default name."},
    [CLI_OPT_FORCE] = {'f', "force", NULL, NULL, "Replace what exists; write binary data to a terminal."},
    [CLI_OPT_BASE] = {0, "base", "FILE", "file", "Base of a delta file, then the base's own bases; of a run, its base model, if that was moved."},
    [CLI_OPT_PROFILE] = {0, "profile", "NAME", "lossless resume small weights", "How to code: lossless (default), resume, small or weights."},
    [CLI_OPT_QUALITY] = {0, "quality", "X", NULL, "Scale the steps of lossy weights by X, 0.01 to 100: 0.5 is twice as fine."},
    [CLI_OPT_STATES] = {0, "optimizer-states", "NAME", "profile cluster codebook", "Beside lossless weights, moments in clusters: 16 or 8 bits a value."},
    [CLI_OPT_TARGET_BITS] = {0, "target-bits", "B", NULL, "Choose steps so that the file takes B bits a parameter."},
    [CLI_OPT_TARGET_RATIO] = {0, "target-ratio", "R", NULL, "Choose steps so that the file is R times smaller."},
    [CLI_OPT_MAX_ERROR] = {0, "max-error", "E", NULL, "Choose the coarsest steps with an RMS error of at most E of each tensor's RMS, on average."},
    [CLI_OPT_DRY_RUN] = {'n', "dry-run", NULL, NULL, "Say what would be written, to the byte, and write nothing."},
    [CLI_OPT_FAST] = {0, "fast", NULL, NULL, "Least time for lossless coding."},
    [CLI_OPT_BEST] = {0, "best", NULL, NULL, "Smallest result of lossless coding."},
    [CLI_OPT_FORMAT] = {0, "format", "NAME", "npy bin safetensors", "npy, bin (the elements alone) or safetensors, whatever PATH ends in."},
    [CLI_OPT_AS] = {0, "as", "TYPE", "f32", "Widen bf16 or f16 to f32, exactly."},
    [CLI_OPT_STRUCTURE] = {0, "structure", NULL, NULL, "Check structure only, which is the default: read no stored data."},
    [CLI_OPT_DATA] = {0, "data", "[=SHARE]", NULL, "Check the hash of every stored chunk too, or of a SHARE of them: --data=5%."},
    [CLI_OPT_DECODE] = {0, "decode", "[=SHARE]", NULL, "Decode every chunk, or a SHARE of them, and check the hash of what comes out too."},
    [CLI_OPT_MAX_TIME] = {0, "max-time", "TIME", NULL, "End after TIME: seconds, or with s, m, h."},
    [CLI_OPT_SEED] = {0, "seed", "N", NULL, "Which chunks a SHARE takes; drawn, and told, unless it is given."},
    [CLI_OPT_ONLY] = {0, "only", "NAME", NULL, "Just the tensors of one object of a run, by their own names: model, for instance."},
    [CLI_OPT_KEEP_LAST] = {0, "keep-last", "N", NULL, "Keep the newest N checkpoints."},
    [CLI_OPT_KEEP_EVERY] = {0, "keep-every", "STEPS", NULL, "Keep the first checkpoint of each stretch of STEPS steps."},
    [CLI_OPT_KEEP_BEST] = {0, "keep-best", "METRIC[:max][:N]", NULL, "Keep the N (1) checkpoints with the lowest, or highest, METRIC."},
    [CLI_OPT_MAX_BYTES] = {0, "max-bytes", "SIZE", NULL, "Then delete the oldest until all fits SIZE: bytes, or with K, M, G, T (of 1000)."},
    [CLI_OPT_DELETE] = {0, "delete", NULL, NULL, "Delete what would be set aside, if something restorable is left."},
    [CLI_OPT_REVERSE] = {0, "reverse", NULL, NULL, "Newest first."},
    [CLI_OPT_ALL] = {0, "all", NULL, NULL, "List everything, what is identical too."},
    [CLI_OPT_EXIT_CODE] = {0, "exit-code", NULL, NULL, "End with 7 when there is a difference, not with 0."},
    [CLI_OPT_STEP] = {0, "step", "N", NULL, "The checkpoint of step N; may be given again."},
    [CLI_OPT_NEWEST] = {0, "newest", NULL, NULL, "The newest checkpoint."},
    [CLI_OPT_DROP_OPTIMIZER] = {0, "drop-optimizer", NULL, NULL, "Drop first moments."},
    [CLI_OPT_OLDER_THAN] = {0, "older-than", "N", NULL, "Keep those of the newest N checkpoints: 10 unless given."},
    [CLI_OPT_IN_ORDER] = {0, "in-order", NULL, NULL, "Steps 1, 2, 3 ..., in the order of the files."},
    [CLI_OPT_TO] = {0, "to", "KIND", "safetensors pt hf", "safetensors, pt, or hf: a model's weights for transformers."},
    [CLI_OPT_MAX_FILE] = {0, "max-file", "SIZE", NULL, "hf: most bytes of tensors in one file; 5G unless given."},
    [CLI_OPT_THREADS] = {'T', "threads", "N", NULL, "Use N threads; 0, the default, is one a processor."},
    [CLI_OPT_JSON] = {0, "json", NULL, NULL, "Print JSON on standard output."},
    [CLI_OPT_MAN] = {0, "man", NULL, NULL, "Print the manual page in roff."},
    [CLI_OPT_COMPLETION] = {0, "completion", NULL, NULL, "Print the completion for bash."},
    [CLI_OPT_PROGRESS] = {0, "progress", NULL, NULL, "Show the progress bar although standard error is no terminal."},
    [CLI_OPT_QUIET] = {'q', "quiet", NULL, NULL, "Print errors and results only."},
    [CLI_OPT_VERBOSE] = {'v', "verbose", NULL, NULL, "Print more."},
    [CLI_OPT_HELP] = {'h', "help", NULL, NULL, "Print help for the command."},
};

static int
set_profile(cli_args *a, const char *name)
{
    for (int p = 0; ckp_profile_name((ckp_profile)p) != NULL; p++)
        if (strcmp(name, ckp_profile_name((ckp_profile)p)) == 0) {
            a->profile = (ckp_profile)p;
            a->has_profile = true;
            return CLI_OK;
        }
    return cli_fail(CLI_USAGE, "no profile '%s': it is one of %s.", name, cli_options[CLI_OPT_PROFILE].choices);
}

static int
set_states(cli_args *a, const char *name)
{
    static const char *const names[] = {"profile", "cluster", "codebook"};

    for (int k = 0; k <= CKP_STATES_CODEBOOK; k++)
        if (strcmp(name, names[k]) == 0) {
            a->states = (ckp_optimizer_states)k;
            return CLI_OK;
        }
    return cli_fail(CLI_USAGE, "no optimizer states '%s': it is one of %s.", name, cli_options[CLI_OPT_STATES].choices);
}

static int
set_threads(cli_args *a, const char *text)
{
    char *end = NULL;
    errno = 0;
    const unsigned long n = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || n > 1024)
        return cli_fail(CLI_USAGE, "--threads '%s' is not a number from 0 to 1024.", text);
    a->threads = (unsigned)n;
    return CLI_OK;
}

static int
set_quality(cli_args *a, const char *text)
{
    char *end = NULL;
    a->quality = strtod(text, &end);
    if (end == text || *end != '\0' || !(a->quality >= 0.01 && a->quality <= 100.0))
        return cli_fail(CLI_USAGE, "--quality '%s' is not a number from 0.01 to 100.", text);
    return CLI_OK;
}

static int
set_budget(double *budget, cli_opt opt, const char *text)
{
    char *end = NULL;
    *budget = strtod(text, &end);
    if (end == text || *end != '\0' || !(*budget > 0.0 && *budget <= 1e9))
        return cli_fail(CLI_USAGE, "--%s '%s' is not a number above 0.", cli_options[opt].name, text);
    return CLI_OK;
}

/* A whole number from 1 to max. */
static int
set_number(uint64_t *to, uint64_t max, cli_opt opt, const char *text)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || n == 0 || n > max)
        return cli_fail(CLI_USAGE, "--%s '%s' is not a whole number above 0.", cli_options[opt].name, text);
    *to = n;
    return CLI_OK;
}

static int
set_keep_last(cli_args *a, const char *text)
{
    uint64_t n = 0;
    const int code = set_number(&n, UINT32_MAX, CLI_OPT_KEEP_LAST, text);
    a->rules.keep_last = (uint32_t)n;
    return code;
}

/* METRIC, then :max, :min, or a number of them, from the end: a metric's own name may hold colons. */
static int
set_keep_best(cli_args *a, const char *text)
{
    char *name = cli_copy(text), *colon;

    free(a->metric);
    a->metric = name;
    a->rules.metric = name;
    a->rules.keep_best = 1;
    a->rules.best_is_max = false;    /* the last one given counts, whole */
    while ((colon = strrchr(name, ':')) != NULL) {
        uint64_t n = 0;
        if (strcmp(colon, ":max") == 0 || strcmp(colon, ":min") == 0) {
            a->rules.best_is_max = strcmp(colon, ":max") == 0;
        } else if (colon[1] >= '0' && colon[1] <= '9') {
            const int code = set_number(&n, UINT32_MAX, CLI_OPT_KEEP_BEST, colon + 1);
            if (code != CLI_OK)
                return code;
            a->rules.keep_best = (uint32_t)n;
        } else {
            break;
        }
        *colon = '\0';
    }
    return name[0] != '\0' ? CLI_OK : cli_fail(CLI_USAGE, "--keep-best '%s' names no metric.", text);
}

static int
set_size(uint64_t *to, cli_opt opt, const char *text)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    double n = strtod(text, &end);
    const char *unit = end != text && *end != '\0' ? strchr(units, *end) : NULL;

    for (const char *u = units; unit != NULL && u <= unit; u++)
        n *= 1000.0;
    if (end == text || !(n >= 1.0 && n < 1e19) || (unit != NULL ? end[1] != '\0' && strcmp(end + 1, "B") != 0 : *end != '\0'))
        return cli_fail(CLI_USAGE, "--%s '%s' is no size: 500M, 10G, 2.5T or a number of bytes.", cli_options[opt].name, text);
    *to = (uint64_t)n;
    return CLI_OK;
}

/* "5%" or "0.05"; nothing: all. */
static int
set_level(cli_args *a, cli_opt opt, ckp_verify_level level, const char *text)
{
    char *end = NULL;

    a->level = level;
    a->share = 1.0;
    if (text == NULL)
        return CLI_OK;
    a->share = strtod(text, &end);
    if (end != text && *end == '%' && end[1] == '\0')
        a->share /= 100.0;
    else if (end == text || *end != '\0')
        a->share = 0.0;
    if (!(a->share > 0.0 && a->share <= 1.0))
        return cli_fail(CLI_USAGE, "--%s=%s is no share: 5%%, or a number above 0 and at most 1.", cli_options[opt].name, text);
    return CLI_OK;
}

static int
set_max_time(cli_args *a, const char *text)
{
    static const char units[] = "smh";
    char *end = NULL;
    double n = strtod(text, &end);
    const char *unit = end != text && *end != '\0' ? strchr(units, *end) : NULL;

    for (const char *u = units; unit != NULL && u < unit; u++)
        n *= 60.0;
    if (end == text || !(n > 0.0 && n < 1e9) || (unit != NULL ? end[1] != '\0' : *end != '\0'))
        return cli_fail(CLI_USAGE, "--max-time '%s' is no time: 60s, 5m, 2h.", text);
    a->max_seconds = n;
    return CLI_OK;
}

static int
set_seed(cli_args *a, const char *text)
{
    char *end = NULL;
    errno = 0;
    a->seed = strtoull(text, &end, 10);
    a->has_seed = true;
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return cli_fail(CLI_USAGE, "--seed '%s' is no whole number.", text);
    return CLI_OK;
}

static int
add_step(cli_args *a, const char *text)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return cli_fail(CLI_USAGE, "--step '%s' is no step.", text);
    a->step[a->n_step++] = n;
    return CLI_OK;
}

static int
set_format(cli_args *a, const char *name)
{
    if (strcmp(name, "npy") != 0 && strcmp(name, "bin") != 0 && strcmp(name, "safetensors") != 0)
        return cli_fail(CLI_USAGE, "no format '%s': it is one of %s.", name, cli_options[CLI_OPT_FORMAT].choices);
    a->format = name;
    return CLI_OK;
}

static int
set_to(cli_args *a, const char *kind)
{
    if (strcmp(kind, "safetensors") != 0 && strcmp(kind, "pt") != 0 && strcmp(kind, "hf") != 0)
        return cli_fail(CLI_USAGE, "--to '%s': it is one of %s.", kind, cli_options[CLI_OPT_TO].choices);
    a->to = kind;
    return CLI_OK;
}

static int
set_as(cli_args *a, const char *name)
{
    a->as_f32 = strcmp(name, "f32") == 0;
    return a->as_f32 ? CLI_OK : cli_fail(CLI_USAGE, "--as '%s': it can be f32 only.", name);
}

static int
set(cli_args *a, cli_opt opt, const char *value)
{
    switch (opt) {
    case CLI_OPT_OUTPUT: a->output = value; break;
    case CLI_OPT_FORCE: a->force = true; break;
    case CLI_OPT_BASE: a->base[a->n_base++] = value; break;
    case CLI_OPT_PROFILE: return set_profile(a, value);
    case CLI_OPT_STATES: return set_states(a, value);
    case CLI_OPT_QUALITY: return set_quality(a, value);
    case CLI_OPT_TARGET_BITS: return set_budget(&a->target_bits, opt, value);
    case CLI_OPT_TARGET_RATIO: return set_budget(&a->target_ratio, opt, value);
    case CLI_OPT_MAX_ERROR: return set_budget(&a->max_error, opt, value);
    case CLI_OPT_DRY_RUN: a->dry_run = true; break;
    case CLI_OPT_FAST: a->effort = 0; break;
    case CLI_OPT_BEST: a->effort = 2; break;
    case CLI_OPT_FORMAT: return set_format(a, value);
    case CLI_OPT_AS: return set_as(a, value);
    case CLI_OPT_STRUCTURE: a->level = CKP_VERIFY_STRUCTURE; break;
    case CLI_OPT_DATA: return set_level(a, opt, CKP_VERIFY_DATA, value);
    case CLI_OPT_DECODE: return set_level(a, opt, CKP_VERIFY_DECODE, value);
    case CLI_OPT_MAX_TIME: return set_max_time(a, value);
    case CLI_OPT_SEED: return set_seed(a, value);
    case CLI_OPT_ONLY: a->only = value; break;
    case CLI_OPT_KEEP_LAST: return set_keep_last(a, value);
    case CLI_OPT_KEEP_EVERY: return set_number(&a->rules.keep_every, UINT64_MAX, opt, value);
    case CLI_OPT_KEEP_BEST: return set_keep_best(a, value);
    case CLI_OPT_MAX_BYTES: return set_size(&a->rules.max_bytes, opt, value);
    case CLI_OPT_DELETE: a->remove = true; break;
    case CLI_OPT_REVERSE: a->reverse = true; break;
    case CLI_OPT_ALL: a->all = true; break;
    case CLI_OPT_EXIT_CODE: a->exit_code = true; break;
    case CLI_OPT_STEP: return add_step(a, value);
    case CLI_OPT_NEWEST: a->newest = true; break;
    case CLI_OPT_DROP_OPTIMIZER: a->drop_optimizer = true; break;
    case CLI_OPT_OLDER_THAN: return set_number(&a->older_than, UINT64_MAX, opt, value);
    case CLI_OPT_IN_ORDER: a->in_order = true; break;
    case CLI_OPT_TO: return set_to(a, value);
    case CLI_OPT_MAX_FILE: return set_size(&a->max_file, opt, value);
    case CLI_OPT_THREADS: return set_threads(a, value);
    case CLI_OPT_JSON: a->json = true; break;
    case CLI_OPT_MAN: a->man = true; break;
    case CLI_OPT_COMPLETION: a->completion = true; break;
    case CLI_OPT_PROGRESS: a->progress = true; break;
    case CLI_OPT_QUIET: a->quiet = true; break;
    case CLI_OPT_VERBOSE: a->verbose = true; break;
    case CLI_OPT_HELP: a->help = true; break;
    case CLI_OPT_COUNT: break;
    }
    return CLI_OK;
}

/* ---- words of the command line ------------------------------------------------------------------------------------- */

typedef struct words { const cli_command *c; int n, at; char **v; } words;

static int
no_option(const words *w, const char *what)
{
    return cli_fail(CLI_USAGE, "%s has no option %s. See 'ckpress help %s'.", w->c->name, what, w->c->name);
}

/* --name, --name=value, --name value */
static int
parse_long(cli_args *a, words *w, const char *word)
{
    const char *equal = strchr(word, '=');
    const size_t len = equal != NULL ? (size_t)(equal - word) : strlen(word);

    for (int i = 0; i < CLI_OPT_COUNT; i++) {
        const cli_option *o = &cli_options[i];
        if ((w->c->options & CLI_HAS(i)) == 0 || strlen(o->name) != len - 2 || strncmp(o->name, word + 2, len - 2) != 0)
            continue;
        if (o->value != NULL && o->value[0] == '[')
            return set(a, (cli_opt)i, equal != NULL ? equal + 1 : NULL);
        if (o->value == NULL)
            return equal == NULL ? set(a, (cli_opt)i, NULL) : cli_fail(CLI_USAGE, "--%s takes no value.", o->name);
        if (equal != NULL)
            return set(a, (cli_opt)i, equal + 1);
        if (w->at == w->n)
            return cli_fail(CLI_USAGE, "--%s needs %s.", o->name, o->value);
        return set(a, (cli_opt)i, w->v[w->at++]);
    }
    return no_option(w, word);
}

/* -f, -fq, -T4, -T 4 */
static int
parse_short(cli_args *a, words *w, const char *word)
{
    int code = CLI_OK;

    for (const char *p = word + 1; code == CLI_OK && *p != '\0'; p++) {
        int i = 0;
        while (i < CLI_OPT_COUNT && ((w->c->options & CLI_HAS(i)) == 0 || cli_options[i].letter != *p))
            i++;
        if (i == CLI_OPT_COUNT) {
            const char name[3] = {'-', *p, '\0'};
            return no_option(w, name);
        }
        if (cli_options[i].value == NULL)
            code = set(a, (cli_opt)i, NULL);
        else if (p[1] != '\0')
            return set(a, (cli_opt)i, p + 1);
        else if (w->at < w->n)
            return set(a, (cli_opt)i, w->v[w->at++]);
        else
            return cli_fail(CLI_USAGE, "-%c needs %s.", *p, cli_options[i].value);
    }
    return code;
}

/* An empty word comes from a variable of a script that was never set: the system's "not found" would not say which. */
static int
check_words(const cli_args *a, const cli_command *c)
{
    for (size_t i = 0; i < a->n_arg; i++)
        if (a->arg[i][0] == '\0')
            return cli_fail(CLI_USAGE, "argument %zu is empty. usage: ckpress %s [OPTION...] %s", i + 1, c->name, c->args);
    for (size_t i = 0; i < a->n_base; i++)
        if (a->base[i][0] == '\0')
            return cli_fail(CLI_USAGE, "--base: its file name is empty.");
    if (a->output != NULL && a->output[0] == '\0')
        return cli_fail(CLI_USAGE, "--output: its file name is empty.");
    return CLI_OK;
}

int
cli_parse(cli_args *a, const cli_command *c, int argc, char **argv)
{
    words w = {c, argc, 0, argv};
    bool plain = false;      /* after "--" */
    int code = CLI_OK;

    *a = (cli_args){.quality = 1.0, .effort = 1, .share = 1.0, .rules = CKP_RETENTION_INIT};
    a->base = cli_alloc(((size_t)argc + 1) * sizeof *a->base);
    a->arg = cli_alloc(((size_t)argc + 1) * sizeof *a->arg);
    a->step = cli_alloc(((size_t)argc + 1) * sizeof *a->step);
    while (code == CLI_OK && w.at < w.n) {
        const char *word = w.v[w.at++];
        if (plain || word[0] != '-' || word[1] == '\0')
            a->arg[a->n_arg++] = word;
        else if (strcmp(word, "--") == 0)
            plain = true;
        else
            code = word[1] == '-' ? parse_long(a, &w, word) : parse_short(a, &w, word);
    }
    if (code != CLI_OK || a->help)
        return code;
    if (a->n_arg < c->min_args || a->n_arg > c->max_args)
        return cli_fail(CLI_USAGE, "usage: ckpress %s [OPTION...] %s", c->name, c->args);
    return check_words(a, c);
}

void
cli_args_free(cli_args *a)
{
    free(a->base);
    free(a->arg);
    free(a->metric);
    free(a->step);
    a->base = a->arg = NULL;
    a->metric = NULL;
    a->step = NULL;
}
