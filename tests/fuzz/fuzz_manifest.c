/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests, run.json, locks and copied.json from hostile bytes. The input is parsed as it is, and once more with the hash that fits it,
 * for otherwise no fuzzer gets past the first check. What parses must print, and parse to the same text again.
 */
#include <stdlib.h>
#include <string.h>
#include "format/manifest.h"
#include "format/runfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
round_trip(const uint8_t *p, size_t n)
{
    ckpi_manifest *m = NULL, *again = NULL;
    ckpi_buf a = CKPI_BUF_INIT, b = CKPI_BUF_INIT;
    ckp_error err;
    if (ckpi_manifest_parse(&m, p, n, &err) == CKP_OK) {
        if (ckpi_manifest_print(m, &a, &err) != CKP_OK || ckpi_manifest_parse(&again, a.data, a.len, &err) != CKP_OK
            || ckpi_manifest_print(again, &b, &err) != CKP_OK || a.len != b.len || memcmp(a.data, b.data, a.len) != 0)
            abort();
    }
    ckpi_manifest_free(m);
    ckpi_manifest_free(again);
    ckpi_buf_free(&a);
    ckpi_buf_free(&b);
}

static void
others(const uint8_t *p, size_t n)
{
    ckpi_runfile run;
    ckpi_lockfile lock;
    ckpi_copyfile copied;
    ckpi_buf b = CKPI_BUF_INIT;
    if (ckpi_runfile_parse(&run, p, n, NULL) == CKP_OK && ckpi_runfile_print(&run, &b, NULL) != CKP_OK)
        abort();
    if (ckpi_lockfile_parse(&lock, p, n, NULL) == CKP_OK && ckpi_lockfile_print(&lock, &b, NULL) != CKP_OK)
        abort();
    if (ckpi_copyfile_parse(&copied, p, n, NULL) == CKP_OK && ckpi_copyfile_print(&copied, &b, NULL) != CKP_OK)
        abort();
    ckpi_buf_free(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ckpi_buf sealed = CKPI_BUF_INIT;
    char hex[33];
    round_trip(data, n);
    ckpi_id_hex(ckpi_hash128(data, n), hex);
    ckpi_buf_put(&sealed, data, n);
    ckpi_buf_put(&sealed, ",\n \"hash\": \"", 12);
    ckpi_buf_put(&sealed, hex, 32);
    ckpi_buf_put(&sealed, "\"\n}\n", 4);
    if (sealed.failed == CKP_OK) {
        round_trip(sealed.data, sealed.len);
        others(sealed.data, sealed.len);
    }
    ckpi_buf_free(&sealed);
    return 0;
}
