/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which moments deserve their bits. docs/decisions/0020 has the reasons and the measurements; bench/optim_policy.py the tables.
 *
 * Damage of coding a moment with one level of its grid, a parameter, is taken to be 2^(score + table[level]): the score is a tensor's, linear in factors
 * that a visit measures, each as its distance from a running mean over all tensors; the table is everyone's. A bit more brings the difference of two
 * levels' damages. A plan gives the next bit to whoever gains most by it, until the budget is used up.
 *
 * All numbers are log2 in parts of 256 unless said otherwise. Halves of negative numbers are rounded by division, towards 0: shifts of them are not C's to define.
 */
#include <string.h>
#include "base/bytes.h"
#include "base/float.h"
#include "optim/look.h"
#include "optim/pack.h"

enum { LEVELS = 6, ONE = 256, MEAN_ONE = 1 << 24, STAYS = 128, PRICE_STEP = 64, NO_PRICE = -(1 << 20) };
enum { LEVEL = 614 };                    /* what a level of m brings: 2.4 octaves */
enum { RATE_MAX = 8 * ONE };             /* worth all levels, and no more: scores come back by half a visit */

/* v has no level of 4 bits: its grid has 3 bits' precision and a range that is not missed, so that a bit there brought a twentieth of what two bring. */
static const uint8_t widths[2][LEVELS] = {{2, 3, 4, 5, 6, 8}, {2, 3, 5, 6, 8, 8}};
static const int levels[2] = {6, 5};

/* What a bit brings from each level to the next, at score 0, less the first of m's: falling, so that a plan never skips a level. */
static const int32_t gain[2][LEVELS] = {
    {0, -556, -1208, -1940, -2355, NO_PRICE},
    {-397, -1569, -1830, -2458, NO_PRICE, NO_PRICE},
};

/* Weights of the factors in scores of m and of v, in parts of 256. */
static const int32_t weight[2][CKP_POLICY_FACTORS] = {
    {210, 420, 0, -141, 0, 0, 381, 0, 0},
    {174, 374, 0, -187, 0, 328, 492, 0, 0},
};

/* log2 of x > 0, by squaring. */
static int64_t
log2_of(uint64_t x)
{
    int64_t whole = 0;
    for (uint64_t y = x; y >>= 1;)
        whole++;
    uint64_t y = whole > 31 ? x >> (whole - 31) : x << (31 - whole);     /* 2^31 to 2^32 */
    int64_t out = whole;
    for (int i = 0; i < 8; i++) {
        y = y * y >> 31;
        out = 2 * out + (int64_t)(y >> 32);
        y >>= y >> 32;
    }
    return out;
}

/* log2 of windows of 16 octaves: unit 2^0 is the lowest one's; false: their sum is 0. */
static bool
log2_of_windows(const int64_t *windows, size_t n, int64_t *out)
{
    uint64_t digit[20] = {0}, carry = 0;
    size_t top = 0;
    for (size_t i = 0; i < n + 4; i++) {
        carry += i < n ? (uint64_t)windows[i] : 0;
        digit[i] = carry & 0xffff;
        carry >>= 16;
        if (digit[i] != 0)
            top = i + 1;
    }
    if (top == 0)
        return false;
    const size_t low = top > 3 ? top - 3 : 0;
    uint64_t x = 0;
    for (size_t i = top; i-- > low;)
        x = x << 16 | digit[i];
    *out = log2_of(x) + (int64_t)(16 * low) * ONE;
    return true;
}

/* log2 of a double > 0. */
static int64_t
log2_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return log2_of((bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x10000000000000)) + ((int64_t)(bits >> 52) - 1075) * ONE;
}

static bool
usual_rate(double lr)
{
    return lr >= 0x1p-100 && lr <= 0x1p100;
}

/* Deviation of n whole numbers by their sums, in parts of 256. */
static int64_t
deviation(int64_t n, int64_t sum, int64_t squares)
{
    const uint64_t x = (uint64_t)(n * squares - sum * sum) / (uint64_t)n * (ONE * ONE) / (uint64_t)n;
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit != 0; bit >>= 1)
        if ((root | bit) * (root | bit) <= x)
            root |= bit;
    return (int64_t)root;
}

bool
ckp_policy_factors(const ckp_optim_stats *s, double lr, uint64_t step, int32_t out[CKP_POLICY_FACTORS])
{
    const int64_t *a = s->sum, n = a[CKPI_LOOK_N], v = a[CKPI_LOOK_V];
    int64_t g = 0, gg = 0, pp = -150 * ONE;
    memset(out, 0, CKP_POLICY_FACTORS * sizeof *out);
    if (n <= 0 || v <= 0 || !log2_of_windows(a + CKPI_LOOK_G, 7, &g) || !log2_of_windows(a + CKPI_LOOK_GG, 14, &gg))
        return false;
    (void)log2_of_windows(a + CKPI_LOOK_PP, 14, &pp);
    const int64_t count = log2_of((uint64_t)n), size_m = log2_of((uint64_t)a[CKPI_LOOK_M] + 1) - 16 * ONE - count;
    const int64_t size_p = (pp - 150 * ONE - count) / 2;
    const int64_t all[CKP_POLICY_FACTORS] = {
        (gg - 150 * ONE - count) / 2,
        (gg + count - 2 * g) / 2,
        a[CKPI_LOOK_E] * ONE / v - 127 * ONE,
        deviation(v, a[CKPI_LOOK_E], a[CKPI_LOOK_EE]),
        deviation(v, a[CKPI_LOOK_C], a[CKPI_LOOK_CC]),
        a[CKPI_LOOK_DEPTH] * ONE / v,
        size_m,
        (usual_rate(lr) ? log2_of_double(lr) : -100 * ONE) + size_m - size_p,
        log2_of(step != 0 ? step : 1),
    };
    for (size_t i = 0; i < CKP_POLICY_FACTORS; i++)
        out[i] = (int32_t)all[i];
    return true;
}

static uint64_t
bytes_of(const ckp_policy_item *t, unsigned bits)
{
    return ckp_optim_state_bytes(t->numel, t->cols, bits);
}

/* The highest level of no more than these bits. */
static int
level_of(unsigned which, unsigned bits)
{
    int level = levels[which] - 1;
    while (level > 0 && widths[which][level] > bits)
        level--;
    return level;
}

/* What the bits from this level to the next would bring. */
static int64_t
gain_of(const ckp_policy_item *t, unsigned which, int level)
{
    return level >= levels[which] - 1 ? NO_PRICE : t->score[which] + gain[which][level];
}

int32_t
ckp_policy_rate(double lr, double common)
{
    if (!usual_rate(common) || !(lr >= 0.0) || lr > 0x1p100)
        return 0;
    const int64_t rate = usual_rate(lr) ? log2_of_double(lr) - log2_of_double(common) : -RATE_MAX;
    return (int32_t)CKPI_MAX(CKPI_MIN(rate, (int64_t)RATE_MAX), (int64_t)-RATE_MAX);
}

uint8_t
ckp_policy_lead(int32_t rate)
{
    return (uint8_t)(rate <= 0 ? 0 : CKPI_MIN((2 * rate + LEVEL / 2) / LEVEL, LEVELS));
}

void
ckp_policy_led(const unsigned bits[2], uint8_t lead, unsigned out[2])
{
    for (unsigned which = 0; which < 2; which++)
        out[which] = widths[which][CKPI_MIN(level_of(which, bits[which]) + (int)lead, levels[which] - 1)];
}

/* Bytes of all, where those that follow have `bits`, or what their leads make of that. */
static uint64_t
bytes_with(const ckp_policy_item *item, size_t n, const unsigned bits[2], bool leads)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < n; k++) {
        const ckp_policy_item *t = &item[k];
        unsigned own[2] = {t->bits[0], t->bits[1]};
        if (t->follows)
            ckp_policy_led(bits, (uint8_t)(leads ? t->follows - 1 : 0), own);
        sum += t->fixed + bytes_of(t, own[0]) + bytes_of(t, own[1]);
    }
    return sum;
}

bool
ckp_policy_start(const ckp_policy *p, const ckp_policy_item *item, size_t n, unsigned bits[2])
{
    static const uint8_t ladder[][2] = {{8, 8}, {8, 6}, {6, 6}, {5, 6}, {5, 5}, {5, 3}, {4, 3}, {3, 3}, {3, 2}, {2, 2}};
    for (int leads = 1; leads >= 0; leads--)
        for (size_t i = 0; i < sizeof ladder / sizeof *ladder; i++) {
            bits[0] = ladder[i][0];
            bits[1] = ladder[i][1];
            if (bytes_with(item, n, bits, leads != 0) <= p->budget)
                return leads != 0;
        }
    return false;
}

/* Distances of factors from their running means, which have moved first: over a round of all tensors, or over what was seen so far. */
static void
take(ckp_policy *p, const int32_t *factor, int64_t *away)
{
    p->visits++;
    const int64_t over = (int64_t)CKPI_MIN(p->visits, CKPI_MAX(p->followers, (uint64_t)16));
    for (size_t i = 0; i < CKP_POLICY_FACTORS; i++) {
        const int64_t x = (int64_t)factor[i] * (MEAN_ONE / ONE);
        p->mean[i] += (x - p->mean[i]) / over;
        away[i] = (x - p->mean[i]) / (MEAN_ONE / ONE);
    }
}

/* Scores follow by half: one batch's gradient is not the tensor's. `more`: how far they rose. */
static void
score(ckp_policy_item *t, const int64_t *away, int32_t rate, int64_t more[2])
{
    for (unsigned which = 0; which < 2; which++) {
        int64_t sum = 0;
        for (size_t i = 0; i < CKP_POLICY_FACTORS; i++)
            sum += weight[which][i] * away[i];
        const int64_t now = sum / ONE + 2 * (int64_t)rate;
        more[which] = t->seen ? (now - t->score[which]) / 2 : 0;
        t->score[which] = (int32_t)(t->seen ? t->score[which] + more[which] : now);
    }
    t->seen = 1;
}

/* Level that a visit leaves a moment at; -1: at the width it has, which is none. */
static int
next_level(const ckp_policy *p, ckp_policy_item *t, unsigned which, int64_t more_score, uint64_t *room)
{
    const int level = level_of(which, t->bits[which]), wanted = t->wanted[which] != 0 ? level_of(which, t->wanted[which]) : level;
    /* the last plan did not know of it */
    const bool news = p->plans != 0 && more_score >= STAYS && gain_of(t, which, level) > p->price + STAYS;
    if (level < levels[which] - 1 && (wanted > level || news)) {
        const uint64_t more = bytes_of(t, widths[which][level + 1]) - bytes_of(t, t->bits[which]);
        t->votes[which] = 0;
        if (more > *room)
            return t->bits[which] == widths[which][level] ? level : -1;
        *room -= more;
        return level + 1;
    }
    const bool between = t->bits[which] != widths[which][level];     /* a width from elsewhere: down to the level is one */
    if (wanted >= level && !between)
        t->votes[which] = 0;
    else if (++t->votes[which] >= 2)
        return between ? level : level - 1;
    return between ? -1 : level;
}

bool
ckp_policy_visit(ckp_policy *p, ckp_policy_item *t, const ckp_optim_stats *s, double lr, int32_t rate, uint64_t step, unsigned bits[2])
{
    int32_t factor[CKP_POLICY_FACTORS];
    int64_t away[CKP_POLICY_FACTORS], more[2];
    bits[0] = t->bits[0];
    bits[1] = t->bits[1];
    if (!t->follows || !ckp_policy_factors(s, lr, step, factor))
        return false;
    take(p, factor, away);
    score(t, away, rate, more);
    uint64_t room = p->budget > p->used ? p->budget - p->used : 0;
    const bool m_first = gain_of(t, 0, level_of(0, bits[0])) >= gain_of(t, 1, level_of(1, bits[1]));
    for (unsigned i = 0; i < 2; i++) {
        const unsigned which = m_first ? i : 1 - i;
        const int level = next_level(p, t, which, more[which], &room);
        bits[which] = level < 0 ? t->bits[which] : widths[which][level];
    }
    return bits[0] != t->bits[0] || bits[1] != t->bits[1];
}

void
ckp_policy_moved(ckp_policy *p, ckp_policy_item *t, const unsigned bits[2])
{
    for (unsigned which = 0; which < 2; which++) {
        if (bits[which] == t->bits[which])
            continue;
        p->raised += bits[which] > t->bits[which];
        p->lowered += bits[which] < t->bits[which];
        p->used += bytes_of(t, bits[which]) - bytes_of(t, t->bits[which]);
        t->bits[which] = (uint8_t)bits[which];
        t->votes[which] = 0;
    }
}

/* Gives tensors what they gain more by than `price`, where it fits; a level that a moment has already may cost STAYS more. */
static void
buy(ckp_policy *p, ckp_policy_item *t, int64_t price, uint64_t *left)
{
    for (unsigned which = 0; which < 2; which++)
        for (int level = level_of(which, t->wanted[which]); level < levels[which] - 1; level++) {
            const uint64_t more = bytes_of(t, widths[which][level + 1]) - bytes_of(t, widths[which][level]);
            const bool has = widths[which][level + 1] <= t->bits[which];
            if (gain_of(t, which, level) + (has ? STAYS : 0) < price || more > *left)
                break;
            *left -= more;
            t->wanted[which] = widths[which][level + 1];
            p->price = price;
        }
}

void
ckp_policy_plan(ckp_policy *p, ckp_policy_item *item, size_t n)
{
    uint64_t least = 0;
    int64_t high = NO_PRICE, low = INT32_MAX;
    p->used = p->followers = 0;
    for (size_t i = 0; i < n; i++) {
        ckp_policy_item *t = &item[i];
        p->used += t->fixed + bytes_of(t, t->bits[0]) + bytes_of(t, t->bits[1]);
        least += t->fixed;
        p->followers += t->follows != 0;
        for (unsigned which = 0; which < 2; which++) {
            t->wanted[which] = t->follows && t->seen ? widths[which][0] : t->bits[which];
            least += bytes_of(t, t->wanted[which]);
            if (!t->follows || !t->seen)
                continue;
            high = CKPI_MAX(high, gain_of(t, which, 0));
            low = CKPI_MIN(low, gain_of(t, which, levels[which] - 2));
        }
    }
    uint64_t left = p->budget > least ? p->budget - least : 0;
    p->plans++;
    /* Prices fall in quarters of an octave: what is bought between two of them is bought in the tensors' order. */
    for (int64_t price = high + STAYS; price >= low && left != 0; price -= PRICE_STEP)
        for (size_t i = 0; i < n; i++)
            if (item[i].follows && item[i].seen)
                buy(p, &item[i], price, &left);
}
