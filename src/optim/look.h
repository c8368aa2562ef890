/* SPDX-License-Identifier: Apache-2.0 */
/* Where the sums of ckp_optim_stats lie. */
#ifndef CKPI_OPTIM_LOOK_H
#define CKPI_OPTIM_LOOK_H
#include <ckpress/optim_policy.h>

enum {
    CKPI_LOOK_N,                         /* elements */
    CKPI_LOOK_V,                         /* with a v */
    CKPI_LOOK_E, CKPI_LOOK_EE,           /* v's exponents and their squares */
    CKPI_LOOK_C, CKPI_LOOK_CC,           /* the same of codes, without factors of rows and columns */
    CKPI_LOOK_DEPTH,                     /* octaves that codes lie below the grid's top */
    CKPI_LOOK_M,                         /* |m| where s is 1, in parts of 2^16: rounding does not change its mean, as it would that of squares */
    CKPI_LOOK_G,                         /* windows of |g| */
    CKPI_LOOK_GG = CKPI_LOOK_G + 7,      /* of g * g */
    CKPI_LOOK_PP = CKPI_LOOK_GG + 14,    /* of p * p */
    CKPI_LOOK_END = CKPI_LOOK_PP + 14
};
_Static_assert((int)CKPI_LOOK_END <= (int)CKP_OPTIM_STATS, "all sums have a place");
#endif
