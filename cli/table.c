/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "table.h"

void
cli_table_init(cli_table *t, const char *align)
{
    *t = (cli_table){.columns = strlen(align), .align = align};
}

void
cli_table_add(cli_table *t, const char *cell)
{
    if (t->n == t->cap) {
        const size_t cap = t->cap != 0 ? 2 * t->cap : 64;
        char **grown = cli_alloc(cap * sizeof *grown);
        if (t->n != 0)
            (void)memcpy(grown, t->cell, t->n * sizeof *grown);
        free(t->cell);
        t->cell = grown;
        t->cap = cap;
    }
    t->cell[t->n++] = cli_copy(cell);
}

/* Characters, not bytes: continuation bytes take no room. */
static size_t
width(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static void
blanks(size_t n)
{
    while (n-- > 0)
        (void)putchar(' ');
}

static void
print_row(const cli_table *t, size_t row, const size_t *wide)
{
    for (size_t c = 0; c < t->columns; c++) {
        const char *cell = t->cell[row * t->columns + c];
        const size_t gap = wide[c] - width(cell);
        if (t->align[c] == 'r')
            blanks(gap);
        cli_safe(stdout, cell);
        if (c + 1 == t->columns)
            break;
        if (t->align[c] == 'l')
            blanks(gap);
        blanks(2);
    }
    (void)putchar('\n');
}

void
cli_table_free(cli_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->cell[i]);
    free(t->cell);
    t->cell = NULL;
    t->n = t->cap = 0;
}

void
cli_table_print(cli_table *t, unsigned indent)
{
    size_t *wide = cli_alloc(t->columns * sizeof *wide);

    for (size_t i = 0; i < t->n; i++)
        if (wide[i % t->columns] < width(t->cell[i]))
            wide[i % t->columns] = width(t->cell[i]);
    for (size_t row = 0; row < t->n / t->columns; row++) {
        blanks(indent);
        print_row(t, row, wide);
    }
    free(wide);
    cli_table_free(t);
}
