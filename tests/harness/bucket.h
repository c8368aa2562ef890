/* SPDX-License-Identifier: Apache-2.0 */
/* A plain object store in memory that allocates nothing, so that every n-th allocation of what is tested can fail, and that can be told what to answer. */
#ifndef CKP_TESTS_BUCKET_H
#define CKP_TESTS_BUCKET_H
#include <ckpress/objects.h>

#define BUCKET_OBJECTS 512

typedef struct bucket_object { char key[128]; uint8_t *data; size_t len; bool there; } bucket_object;

typedef struct bucket {
    bucket_object v[BUCKET_OBJECTS];
    uint8_t *memory;             /* never reused */
    size_t used;
    unsigned long stats, gets, puts, lists, removes;
    ckp_status answer;           /* not CKP_OK: what every callback says from now on, without doing anything */
    const char *const *extra;    /* names that list() adds, up to a NULL; NULL: none */
} bucket;

/* Aborts where the system has no memory. */
bucket *bucket_new(void);
void bucket_free(bucket *b);
ckp_objects bucket_table(bucket *b);
bucket_object *bucket_find(bucket *b, const char *key);      /* NULL: none */
void bucket_set(bucket *b, const char *key, const void *p, size_t n);
size_t bucket_count(const bucket *b);
#endif
