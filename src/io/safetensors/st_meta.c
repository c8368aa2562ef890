/* SPDX-License-Identifier: Apache-2.0 */
/* What a safetensors header says beside its tensors. */
#include "base/fail.h"
#include "io/io.h"
#include "io/safetensors/st.h"

ckp_status
ckpi_tree_st_metadata(const void *tree, size_t tree_len, bool (*fn)(void *user, const char *key, const char *value), void *user, ckp_error *err)
{
    const void *header = NULL;
    size_t len = 0;
    ckpi_st st;

    ckp_status s = ckpi_tree_st_header(tree, tree_len, &header, &len, err);
    if (s == CKP_OK)
        s = ckpi_st_parse(&st, header, len, err);
    if (s != CKP_OK)
        return s;
    for (size_t i = 0; s == CKP_OK && i < st.n_meta; i++)
        if (!fn(user, st.meta[2 * i], st.meta[2 * i + 1]))
            s = ckpi_fail(err, CKP_ENOMEM, "no memory for a header's metadata");
    ckpi_st_free(&st);
    return s;
}
