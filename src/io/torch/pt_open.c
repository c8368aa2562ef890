/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "io/foreign.h"
ckp_status ckpi_pt_open_zip(ckpi_foreign *f, ckp_error *err) { (void)f; return ckpi_fail(err, CKP_EUNSUPPORTED, "torch files: not yet"); }
ckp_status ckpi_pt_open_legacy(ckpi_foreign *f, ckp_error *err) { (void)f; return ckpi_fail(err, CKP_EUNSUPPORTED, "torch files: not yet"); }
ckp_status ckpi_match_state(ckp_state *s, ckpi_notice_fn notice, void *user, ckp_error *err) { (void)s; (void)notice; (void)user; (void)err; return CKP_OK; }
ckp_status ckpi_export_pt(ckpi_export **out, ckpi_writer *w, const char *archive_name, const ckpi_out_tensor *t, size_t n, const void *tree, size_t tree_len, ckp_error *err) { *out=NULL; (void)w; (void)archive_name; (void)t; (void)n; (void)tree; (void)tree_len; return ckpi_fail(err, CKP_EUNSUPPORTED, "torch files: not yet"); }
