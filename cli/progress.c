/* SPDX-License-Identifier: Apache-2.0 */
/* The bar, and signals that ask for a stop through it. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ui.h"

/* The only thing that a handler may touch. */
static volatile sig_atomic_t caught;

/*
 * The work notices a signal at its next progress call; a wait for a pipe is interrupted, and then asks. An alarm each second interrupts
 * once more what began to wait just after the signal came; what has not noticed by then never will.
 */
enum { PATIENCE = 5 };
static volatile sig_atomic_t rung;

/*
 * A second signal ends the process at once, for a person who does not want to wait. What comes within this time is the same request
 * sent twice: timeout(1) signals its child and then its group, a terminal all of a group of which one passes it on.
 */
enum { SAME_REQUEST_MS = 500 };
static struct timespec first;

static long
ms_since(const struct timespec *then)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - then->tv_sec) * 1000L + (now.tv_nsec - then->tv_nsec) / 1000000L;
}

static void
catch(int sig)
{
    const int saved = errno;

    if (caught == 0) {
        (void)clock_gettime(CLOCK_MONOTONIC, &first);
        caught = sig;
        (void)alarm(1);
    } else if (ms_since(&first) > SAME_REQUEST_MS) {
        (void)signal(sig, SIG_DFL);
        (void)raise(sig);           /* delivered when this handler returns */
    }
    errno = saved;
}

static void
ring(int sig)
{
    static const char text[] = "ckpress: stopped by a signal; a temporary file may be left, which the next command there removes.\n";
    (void)sig;
    if (++rung < PATIENCE) {
        (void)alarm(1);
        return;
    }
    const ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    _exit(128 + (int)caught);
}

void
cli_signals_catch(void)
{
    /* No SA_RESTART: waiting ends. */
    struct sigaction sa = {.sa_handler = catch};
    struct sigaction late = {.sa_handler = ring}, old;
    const int sigs[] = {SIGINT, SIGTERM, SIGHUP};

    (void)sigemptyset(&late.sa_mask);
    (void)sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++)
        (void)sigaddset(&sa.sa_mask, sigs[i]);      /* two of them are not told at once */
    (void)sigaction(SIGALRM, &late, NULL);
    /* A limit on file sizes is an error like a full disk, not a death that leaves a temporary. */
    (void)signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++)
        if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)   /* nohup stays nohup */
            (void)sigaction(sigs[i], &sa, NULL);
}

int
cli_signal(void)
{
    return (int)caught;
}

void
cli_progress_start(cli_progress *p, const cli_args *a, const char *what)
{
    const char *slash = strrchr(what, '/');
    *p = (cli_progress){.what = slash != NULL && slash[1] != '\0' ? slash + 1 : what, .started = cli_seconds(),
                        .draw = !a->quiet && (a->progress || isatty(STDERR_FILENO) == 1)};
}

static void
draw(const cli_progress *p, uint64_t done, uint64_t total)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    cli_text speed, size;
    const double s = cli_seconds() - p->started, part = total != 0 ? (double)done / (double)total : 0.0;
    const uint64_t per_second = s > 0.0 ? (uint64_t)((double)done / s) : 0;

    const int full = part >= 1.0 ? WIDTH : (int)(part * WIDTH);
    (void)memset(bar, '.', WIDTH);
    (void)memset(bar, '#', (size_t)full);
    bar[WIDTH] = '\0';
    (void)fputs("\r\033[K", stderr);
    char name[32];
    (void)snprintf(name, sizeof name, "%.28s", p->what);
    cli_safe(stderr, name);
    if (total != 0)
        (void)fprintf(stderr, "  [%s] %3d %%  %s  %s/s", bar, (int)(part * 100.0), cli_size(&size, done), cli_size(&speed, per_second));
    else
        (void)fprintf(stderr, "  %s  %s/s", cli_size(&size, done), cli_size(&speed, per_second));
    if (part > 0.0 && part < 1.0 && s > 1.0)
        (void)fprintf(stderr, "  %.0f s left", s * (1.0 - part) / part);
    (void)fflush(stderr);
}

int
cli_progress_step(void *progress, uint64_t done, uint64_t total)
{
    cli_progress *p = progress;
    const double now = cli_seconds();

    if (p->draw && (now - p->shown >= 0.1 || done == total)) {
        p->shown = now;
        draw(p, done, total);
    }
    if (caught != 0)
        (void)alarm(0);          /* noticed: cleaning up may take its time */
    return caught;
}

double
cli_progress_end(cli_progress *p)
{
    if (p->draw && p->shown != 0.0)
        (void)fputs("\r\033[K", stderr);
    return cli_seconds() - p->started;
}
