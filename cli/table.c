/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "table.h"

#define NOTE_INDENT 6
#define NOTE_WIDTH 100

typedef struct cli_table_line { size_t row; char *text; } cli_table_line;

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

void
cli_table_note(cli_table *t, const char *text)
{
    if (t->n_notes == t->notes_cap) {
        const size_t cap = t->notes_cap != 0 ? 2 * t->notes_cap : 64;
        cli_table_line *grown = cli_alloc(cap * sizeof *grown);
        if (t->n_notes != 0)
            (void)memcpy(grown, t->note, t->n_notes * sizeof *grown);
        free(t->note);
        t->note = grown;
        t->notes_cap = cap;
    }
    t->note[t->n_notes++] = (cli_table_line){t->n / t->columns - 1, cli_copy(text)};
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

/* How many bytes of text go on one line. */
static size_t
line_length(const char *text, size_t room)
{
    size_t n = 0, space = 0, wide = 0;

    for (; text[n] != '\0' && wide < room; n++) {
        wide += ((unsigned char)text[n + 1] & 0xC0) != 0x80;
        space = text[n] == ' ' ? n : space;
    }
    return text[n] == '\0' || space == 0 ? n : space;
}

static void
print_note(const char *text, unsigned indent)
{
    for (size_t n = 0; *text != '\0'; text += n + (text[n] == ' ')) {
        n = line_length(text, NOTE_WIDTH - NOTE_INDENT - indent);
        char *line = cli_copy(text);
        line[n] = '\0';
        blanks(indent + NOTE_INDENT);
        cli_safe(stdout, line);
        (void)putchar('\n');
        free(line);
    }
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
    for (size_t i = 0; i < t->n_notes; i++)
        free(t->note[i].text);
    free(t->cell);
    free(t->note);
    t->cell = NULL;
    t->note = NULL;
    t->n = t->cap = t->n_notes = t->notes_cap = 0;
}

void
cli_table_print(cli_table *t, unsigned indent)
{
    size_t *wide = cli_alloc(t->columns * sizeof *wide), note = 0;

    for (size_t i = 0; i < t->n; i++)
        if (wide[i % t->columns] < width(t->cell[i]))
            wide[i % t->columns] = width(t->cell[i]);
    for (size_t row = 0; row < t->n / t->columns; row++) {
        blanks(indent);
        print_row(t, row, wide);
        for (; note < t->n_notes && t->note[note].row == row; note++)
            print_note(t->note[note].text, indent);
    }
    free(wide);
    cli_table_free(t);
}
