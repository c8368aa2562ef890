/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluations that the searches for a configuration need, on made-up losses: no model is in it, so only counts can be learnt from it. */
#ifndef CKPB_COMMON_SEARCH_H
#define CKPB_COMMON_SEARCH_H
#include <stdbool.h>

/* Prints lines "search_... value"; false when a search failed or found another optimum than trying all. */
bool ckpb_search(void);
#endif
