/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fail.h"
#include "run/dynaquant.h"
#include "run/profile.h"
#include "run/steps.h"

static const char *const names[] = {"lossless", "resume", "small", "weights"};

const char *
ckp_profile_name(ckp_profile p)
{
    return (unsigned)p < sizeof names / sizeof *names ? names[p] : NULL;
}

ckp_profile
ckpi_profile_named(const char *name)
{
    for (int p = 0; name != NULL && ckp_profile_name((ckp_profile)p) != NULL; p++)
        if (strcmp(name, ckp_profile_name((ckp_profile)p)) == 0)
            return (ckp_profile)p;
    return CKP_PROFILE_LOSSLESS;
}

ckp_status
ckpi_coding_check(const ckp_coding *c, ckp_error *err)
{
    if (c->size != sizeof *c)
        return ckpi_fail(err, CKP_EINVAL, "coding options of size %zu; this library knows %zu", c->size, sizeof *c);
    if (ckp_profile_name(c->profile) == NULL)
        return ckpi_fail(err, CKP_EINVAL, "no profile %d", (int)c->profile);
    if (!(c->quality >= 0.01 && c->quality <= 100.0))
        return ckpi_fail(err, CKP_EINVAL, "quality %g is not between 0.01 and 100", c->quality);
    if (c->effort > 2)
        return ckpi_fail(err, CKP_EINVAL, "effort %u is not 0, 1 or 2", c->effort);
    if (c->threads > 1024)
        return ckpi_fail(err, CKP_EINVAL, "%u threads are too many", c->threads);
    if ((unsigned)c->optimizer_states > CKP_STATES_CODEBOOK)
        return ckpi_fail(err, CKP_EINVAL, "no optimizer states %d", (int)c->optimizer_states);
    if (c->optimizer_states != CKP_STATES_PROFILE && c->profile != CKP_PROFILE_LOSSLESS)
        return ckpi_fail(err, CKP_EINVAL, "clusters of optimizer states stand beside lossless weights; the profile %s has its own way", ckp_profile_name(c->profile));
    const ckp_status st = ckpi_steps_check(c, err);
    return st == CKP_OK && c->dynaquant != NULL ? ckpi_dynaquant_check(c->dynaquant, c->profile, err) : st;
}

/* Qualities from here on are for weights that are nearly exact (docs/decisions/0009). */
#define FINE 0.2
/* Steps of first moments by quality, there: a third of their own noise at 0.1, as small tensors' always are. */
#define FINE_MSTEP 2.5

ckpi_settings
ckpi_profile_settings(const ckp_coding *c)
{
    /* Common to all lossy profiles: clamps of DESIGN section 3 item 2, v at two octaves, small tensors 16 times finer.
       docs/decisions has what was measured for keys (1), vstay (6), f, mshare and mstep (9), average (13). */
    ckpi_settings s = {.lossy = true, .f = 1.6, .clamp_lo = 0.25, .clamp_hi = 1.5, .k_move = 64.0, .average = 0.2, .vstep = 512, .vstay = 0.75,
                       .mthree = true, .mshare = 0.035, .mstep = 6.5, .fine_shift = 4};

    switch (c->profile) {
    case CKP_PROFILE_LOSSLESS:
        s = (ckpi_settings){.clusters = (ckpi_clusters_kind)c->optimizer_states};
        break;
    case CKP_PROFILE_RESUME:
        break;
    case CKP_PROFILE_SMALL:
        s.f = 2.4;
        s.k_move = 96.0;
        s.average = 0.4;
        s.mshare = 0.012;
        s.mstep = 13.0;
        break;
    case CKP_PROFILE_WEIGHTS:
        /* no training goes on from these: a fifth of the RMS, about 4.3 bits a weight */
        s.f = s.average = 0.2;
        s.k_move = 0.0;
        s.weights_only = true;
        break;
    }
    s.dynaquant = c->dynaquant != NULL;
    s.f *= c->quality;
    s.average *= c->quality;
    s.k_move *= c->quality;
    s.named = c->quality;
    /* Three values of moments cost a training the same however fine its weights are: where those are nearly exact, moments are rounded evenly. */
    if (s.mthree && c->quality <= FINE) {
        s.mthree = false;
        s.mstep = FINE_MSTEP * c->quality;
    }
    return s;
}

uint64_t
ckpi_memory_budget(const ckp_coding *c)
{
    if (c->memory_budget != 0)
        return c->memory_budget;
    return CKPI_MAX(ckpi_ram_bytes() / 4, UINT64_C(256) << 20);
}
