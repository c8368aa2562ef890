/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed JSON records (manifest, run.json, lock): one object whose file ends in exactly
 *
 *     ,\n "hash": "<32 hex digits>"\n}\n
 *
 * where the digits are XXH3-128 of all bytes before that tail. The hash is checked before a byte is parsed, over bytes, so
 * no canonical form of JSON is needed. Duplicate keys and nesting beyond CKPI_MAX_JSON_DEPTH are refused.
 */
#ifndef CKPI_FORMAT_JSON_H
#define CKPI_FORMAT_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include "base/buf.h"
#include "base/hash.h"

/* Appends the record's bytes; obj must not be empty. */
CKP_MUST_USE ckp_status ckpi_json_seal(const json_t *obj, ckpi_buf *out, ckp_error *err);
/* CKP_EFORMAT: not such a record at all; CKP_ECORRUPT: cut or changed; CKP_ELIMIT; CKP_ENOMEM. what: "manifest", for messages. */
CKP_MUST_USE ckp_status ckpi_json_unseal(json_t **out, const void *data, size_t n, const char *what, ckp_error *err);
/* Any one JSON object, without a seal. */
CKP_MUST_USE ckp_status ckpi_json_object(json_t **out, const char *text, size_t n, const char *what, ckp_error *err);

/* Sticky reader of an object's fields: after the first bad field every get gives 0; st is checked once at the end. */
typedef struct ckpi_jrd {
    const json_t *obj;
    const char *what;        /* "manifest" */
    ckp_status st;
    ckp_error *err;
} ckpi_jrd;

uint64_t ckpi_jrd_u64(ckpi_jrd *r, const char *key, uint64_t max);
int64_t ckpi_jrd_i64(ckpi_jrd *r, const char *key);
const char *ckpi_jrd_str(ckpi_jrd *r, const char *key);          /* borrowed; NULL when bad */
const char *ckpi_jrd_str_or_null(ckpi_jrd *r, const char *key);  /* null or absent gives NULL and is not bad */
ckpi_id ckpi_jrd_id(ckpi_jrd *r, const char *key);
uint64_t ckpi_jrd_hex(ckpi_jrd *r, const char *key, unsigned digits);
/* The field when it is of that type; NULL and bad otherwise. */
const json_t *ckpi_jrd_get(ckpi_jrd *r, const char *key, json_type type);
void ckpi_jrd_fail(ckpi_jrd *r, const char *key, const char *why);
/* Checks "key": 1..max. A higher number is CKP_EVERSION, an absent one CKP_EFORMAT; then that "features" lists only known names (none yet). */
void ckpi_jrd_version(ckpi_jrd *r, const char *key, uint64_t max);

/* Adds; false on lack of memory or text that is not UTF-8. jput takes v and refuses NULL; jput_str adds null for NULL. */
bool ckpi_jput(json_t *obj, const char *key, json_t *v);
bool ckpi_jput_u64(json_t *obj, const char *key, uint64_t v);    /* false above INT64_MAX */
bool ckpi_jput_str(json_t *obj, const char *key, const char *s);
bool ckpi_jput_id(json_t *obj, const char *key, ckpi_id id);
bool ckpi_jput_hex(json_t *obj, const char *key, uint64_t v, unsigned digits);
#endif
