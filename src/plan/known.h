/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a search knows. Answers are facts (or suppositions, when a question is thought ahead); a view is what follows from them:
 * which configurations are good enough or not by monotonicity, and which are still open, that is, might yet be the choice.
 */
#ifndef CKPI_PLAN_KNOWN_H
#define CKPI_PLAN_KNOWN_H
#include "plan/grid.h"

typedef enum ckpi_verdict { CKPI_UNKNOWN = 0, CKPI_GOOD, CKPI_BAD } ckpi_verdict;

/* Of each configuration. */
typedef struct ckpi_answers {
    uint8_t verdict[CKPI_GRID];
    double loss[CKPI_GRID];              /* NaN of a supposition */
    uint64_t bytes[CKPI_GRID];           /* 0 of a supposition */
} ckpi_answers;

/* The question: what is fixed from the start. */
typedef struct ckpi_problem {
    ckp_search_method method;
    double live, budget;                 /* good: loss - live <= budget */
    int last, radius;                    /* of the neighbourhood */
    int metrics;                         /* 1 or 2 */
    int length[CKPI_AXES];               /* of each axis, as far as it is used */
    bool sized;                          /* sizes were given */
    bool exists[CKPI_GRID];              /* is there, and is itself (not the other metric's name for it) */
    bool beaten[CKPI_GRID];              /* sized: another that covers it is no larger, so it is never the choice */
    uint64_t size[CKPI_GRID];
    uint64_t covers[CKPI_GRID][(CKPI_GRID + 63) / 64];  /* [a] bit b: a covers b */
} ckpi_problem;

typedef struct ckpi_view {
    bool open[CKPI_GRID];
    uint8_t verdict[CKPI_GRID];          /* answered or implied */
} ckpi_view;

/* Fills exists, covers, size and beaten. */
void ckpi_problem_init(ckpi_problem *p, const ckp_search_options *opt);
static inline bool
ckpi_covers(const ckpi_problem *p, int a, int b)
{
    return (p->covers[a][b / 64] >> (b % 64) & 1) != 0;
}
/* The smallest good one answered, or CKPI_NO_CONFIG. */
int ckpi_smallest_good(const ckpi_problem *p, const ckpi_answers *k);
void ckpi_view_of(ckpi_view *v, const ckpi_problem *p, const ckpi_answers *k);

/* The next question that k leaves, or CKPI_NO_CONFIG. Pure functions: the same knowledge asks the same question. */
int ckpi_guided_next(const ckpi_problem *p, const ckpi_answers *k);
/* *wide: nothing near is good enough, and the question is of the whole grid. */
int ckpi_neighbourhood_next(const ckpi_problem *p, const ckpi_answers *k, bool *wide);
/* The good one that a neighbourhood chooses, or CKPI_NO_CONFIG. */
int ckpi_neighbourhood_choice(const ckpi_problem *p, const ckpi_answers *k);
#endif
