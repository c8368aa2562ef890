/* SPDX-License-Identifier: Apache-2.0 */
/* What every cmocka test includes first. */
#ifndef CKP_TESTS_CHECK_H
#define CKP_TESTS_CHECK_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define CHECK_COUNT(a) (sizeof(a) / sizeof(a)[0])
/* A status by value, with its meaning in the message. */
#define assert_status(expr, want) assert_int_equal((int)(expr), (int)(want))
#define assert_ok(expr) assert_int_equal((int)(expr), 0)
#endif
