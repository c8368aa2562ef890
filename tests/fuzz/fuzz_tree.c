/* SPDX-License-Identifier: Apache-2.0 */
/* Trees and tables of any bytes; a tree that passes is walked and written again, and must come out the same. */
#include <stdlib.h>
#include <string.h>
#include "format/table.h"
#include "state/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
rewrite(const uint8_t *p, size_t n)
{
    ckp_state *s;
    ckp_tree_reader r;
    ckp_tree_node node;
    if (ckp_state_new(&s, NULL) != CKP_OK)
        return;
    ckp_tree_reader_init(&r, p, n);
    while (ckp_tree_next(&r, &node, NULL) == CKP_OK)
        if (ckp_state_tree_put(s, &node, NULL) != CKP_OK)
            abort();
    if (s->tree.len != n || (n != 0 && memcmp(s->tree.data, p, n) != 0))
        abort();
    ckp_state_free(s);
}

static void
table(const uint8_t *p, size_t n)
{
    ckpi_table *t;
    ckpi_buf again = CKPI_BUF_INIT;
    if (ckpi_table_decode(&t, p, n, NULL) != CKP_OK)
        return;
    ckpi_table_encode(t, &again);
    if (again.failed == CKP_OK && (again.len != n || memcmp(again.data, p, n) != 0))
        abort();
    ckpi_buf_free(&again);
    ckpi_table_free(t);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (ckpi_tree_check(data, size, 50, NULL) == CKP_OK)
        rewrite(data, size);
    table(data, size);
    return 0;
}
