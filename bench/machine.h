/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine and compiler a figure comes from. */
#ifndef CKPB_MACHINE_H
#define CKPB_MACHINE_H
#include <stdio.h>
#include <string.h>

#if defined(__clang__)
#define CKPB_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define CKPB_COMPILER "gcc " __VERSION__
#else
#define CKPB_COMPILER "unknown"
#endif

static inline void
ckpb_cpu_model(char out[128])
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");

    (void)snprintf(out, 128, "unknown");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
            (void)snprintf(out, 128, "%.120s", strchr(line, ':') + 2);
            out[strcspn(out, "\n\"")] = '\0';
            break;
        }
    if (f != NULL)
        (void)fclose(f);
}

static inline void
ckpb_machine_json(FILE *to)
{
    char cpu[128];
    ckpb_cpu_model(cpu);
    (void)fprintf(to, "%s, %s", cpu, CKPB_COMPILER);
}

static inline void
ckpb_machine(FILE *to)
{
    (void)fputs("machine: ", to);
    ckpb_machine_json(to);
    (void)fputc('\n', to);
}
#endif
