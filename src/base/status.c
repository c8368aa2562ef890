/* SPDX-License-Identifier: Apache-2.0 */
/* Names of status codes and roles, and the version. */
#include <ckpress/base.h>

const char *
ckp_version(void)
{
    return CKP_VERSION_STRING;
}

const char *
ckp_status_name(ckp_status st)
{
    switch (st) {
    case CKP_OK: return "ok";
    case CKP_EINVAL: return "invalid argument";
    case CKP_ENOMEM: return "out of memory";
    case CKP_ELIMIT: return "limit exceeded";
    case CKP_EUNSUPPORTED: return "unsupported";
    case CKP_ECANCELLED: return "cancelled";
    case CKP_EBUSY: return "busy";
    case CKP_EFORK: return "used after fork";
    case CKP_ESTATE: return "wrong state";
    case CKP_EIO: return "input/output error";
    case CKP_ENOTFOUND: return "not found";
    case CKP_EEXIST: return "exists";
    case CKP_ENOSPC: return "no space";
    case CKP_EACCESS: return "access denied";
    case CKP_ECORRUPT: return "corrupt";
    case CKP_ETRUNCATED: return "truncated";
    case CKP_EFORMAT: return "unknown format";
    case CKP_EVERSION: return "newer format version";
    case CKP_EBASE: return "wrong base";
    case CKP_EMISMATCH: return "mismatch";
    case CKP_EPATH: return "unsafe path";
    case CKP_EUNSAFE: return "unsafe pickle";
    case CKP_EPARTIAL: return "partly written";
    case CKP_EINTERNAL: return "internal error";
    }
    return "unknown";
}

const char *
ckp_role_name(ckp_role r)
{
    switch (r) {
    case CKP_ROLE_OTHER: return "other";
    case CKP_ROLE_WEIGHT: return "weight";
    case CKP_ROLE_MASTER: return "master";
    case CKP_ROLE_COPY: return "copy";
    case CKP_ROLE_M: return "m";
    case CKP_ROLE_V: return "v";
    case CKP_ROLE_MOMENTUM: return "momentum";
    case CKP_ROLE_AVERAGE: return "average";
    case CKP_ROLE_COUNT_: break;
    }
    return NULL;
}
