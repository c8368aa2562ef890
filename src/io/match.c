/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
ckp_status ckpi_match_state(ckp_state *s, ckpi_notice_fn notice, void *user, ckp_error *err) { (void)s; (void)notice; (void)user; (void)err; return CKP_OK; }
