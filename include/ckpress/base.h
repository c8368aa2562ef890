/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_BASE_H
#define CKPRESS_BASE_H
/*
 * Status codes, error details, dtypes and the version: what every other header needs.
 *
 * Every function that can fail returns a ckp_status (0 or negative) and takes an optional, caller-owned ckp_error
 * as its last argument. The library never prints, never exits, reads no environment and keeps no global state.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKP_API __attribute__((visibility("default")))
#define CKP_MUST_USE __attribute__((warn_unused_result))
#else
#define CKP_API
#define CKP_MUST_USE
#endif

#define CKP_VERSION_MAJOR 0
#define CKP_VERSION_MINOR 1
#define CKP_VERSION_PATCH 0
#define CKP_VERSION_STRING "0.1.0"

/** Version of the library that is linked, as "major.minor.patch". Static; never NULL. */
CKP_API const char *ckp_version(void);

/** Status codes. Values are pinned for ever and never reused; families are ten or twenty apart. */
typedef enum ckp_status {
    CKP_OK = 0,
    /* the caller */
    CKP_EINVAL = -1,       /**< misuse: NULL where it is not allowed, bad option, bad name */
    CKP_ENOMEM = -2,       /**< an allocation failed, or no more files may be open (error.sys_errno) */
    CKP_ELIMIT = -3,       /**< a cap (docs/format.md) or the caller's memory budget would be exceeded */
    CKP_EUNSUPPORTED = -4, /**< a type, feature bit or option that this version does not know */
    CKP_ECANCELLED = -5,   /**< the caller's progress callback asked to stop */
    CKP_EBUSY = -6,        /**< another writer holds the run, or a save is in flight */
    CKP_EFORK = -7,        /**< the handle belongs to another process (docs/runs.md, invariant 11) */
    CKP_ESTATE = -8,       /**< called in the wrong order, or after an earlier failure that must be seen first */
    /* the file system or store */
    CKP_EIO = -20,         /**< read, write or fsync failed; error.sys_errno says how */
    CKP_ENOTFOUND = -21,   /**< no such file, checkpoint or tensor */
    CKP_EEXIST = -22,      /**< the target exists and may not be replaced */
    CKP_ENOSPC = -23,      /**< no space or quota left */
    CKP_EACCESS = -24,     /**< permission denied or read-only */
    /* the data */
    CKP_ECORRUPT = -40,    /**< bytes do not match their hash or break the format */
    CKP_ETRUNCATED = -41,  /**< the file ends before its trailer or a record */
    CKP_EFORMAT = -42,     /**< not a file of this kind at all */
    CKP_EVERSION = -43,    /**< written by a newer format version */
    CKP_EBASE = -44,       /**< the base given is not the base that the delta names */
    CKP_EMISMATCH = -45,   /**< names, dtypes or shapes differ from what the caller holds */
    CKP_EPATH = -46,       /**< a name that would leave its directory */
    CKP_EUNSAFE = -47,     /**< a pickle that asks for something outside the allow-list */
    CKP_EPARTIAL = -48,    /**< memory of the caller is partly written and must not be used: its file failed between proof and writing */
    CKP_EINTERNAL = -60    /**< a bug in ckpress */
} ckp_status;

/** Short English name of a status, e.g. "corrupt". Static; "unknown" for other values. */
CKP_API const char *ckp_status_name(ckp_status st);

#define CKP_NO_OFFSET UINT64_MAX

/**
 * Details of a failure. Owned by the caller; the library only fills it. `text` is a whole sentence that already names
 * the file, the tensor and the offset where they are known; the fields give the same for programs.
 */
typedef struct ckp_error {
    ckp_status code;
    int sys_errno;       /**< errno of the call that failed, or 0 */
    uint64_t offset;     /**< byte offset in `file`, or CKP_NO_OFFSET */
    char file[512];      /**< file or checkpoint, "" when not known */
    char tensor[256];    /**< tensor, "" when not known */
    char text[768];
} ckp_error;

/** Element types. Values are wire ids (docs/format.md, "dtypes"): pinned for ever. */
typedef enum ckp_dtype {
    CKP_BOOL = 1,
    CKP_U8 = 2,
    CKP_I8 = 3,
    CKP_U16 = 4,
    CKP_I16 = 5,
    CKP_U32 = 6,
    CKP_I32 = 7,
    CKP_U64 = 8,
    CKP_I64 = 9,
    CKP_F16 = 10,
    CKP_BF16 = 11,
    CKP_F32 = 12,
    CKP_F64 = 13,
    CKP_F128 = 14, /**< numpy longdouble as it lies in memory (16 bytes) */
    CKP_C32 = 15,  /**< complex of two f16 */
    CKP_C64 = 16,
    CKP_C128 = 17,
    CKP_C256 = 18, /**< numpy clongdouble (32 bytes) */
    CKP_F8E4M3FN = 20,
    CKP_F8E5M2 = 21,
    CKP_F8E4M3FNUZ = 22,
    CKP_F8E5M2FNUZ = 23,
    CKP_F8E8M0FNU = 24,
    CKP_F8E4M3 = 25,
    CKP_F8E3M4 = 26,
    CKP_F8E4M3B11FNUZ = 27,
    /* one element in one byte, as ml_dtypes keeps them in numpy arrays */
    CKP_F6E2M3FN = 30,
    CKP_F6E3M2FN = 31,
    CKP_F4E2M1FN = 32,
    CKP_I4 = 33,
    CKP_U4 = 34,
    CKP_I2 = 35,
    CKP_U2 = 36,
    CKP_I1 = 37,
    CKP_U1 = 38,
    /* packed: shapes count elements, the whole tensor must end on a byte (safetensors F4, F6_*) */
    CKP_F4_PACKED = 40,
    CKP_F6E2M3_PACKED = 41,
    CKP_F6E3M2_PACKED = 42,
    /* packed: shapes count bytes, as torch keeps them (float4_e2m1fn_x2, int1..int7 and uint1..uint7 shells) */
    CKP_F4E2M1FN_X2 = 50,
    CKP_BITS8 = 51,   /**< opaque bytes under another library's name (torch bits8, int3, uint5 ...) */
    CKP_BITS16 = 52,
    CKP_QINT8 = 53,
    CKP_QUINT8 = 54,
    CKP_QINT32 = 55,
    CKP_QUINT4X2 = 56,
    CKP_QUINT2X4 = 57,
    CKP_DATETIME64 = 60, /**< numpy; unit kept in the state tree */
    CKP_TIMEDELTA64 = 61
} ckp_dtype;

/** Storage bits of one element (4 to 256), or 0 for an unknown value. */
CKP_API unsigned ckp_dtype_bits(ckp_dtype dt);
/** Name as in `ckpress ls`, e.g. "bf16". Static; NULL for an unknown value. */
CKP_API const char *ckp_dtype_name(ckp_dtype dt);
/** The dtype of that name; 0 when there is none. */
CKP_API ckp_dtype ckp_dtype_find(const char *name);

/** What a tensor is to the training. Values are wire ids. */
typedef enum ckp_role {
    CKP_ROLE_OTHER = 0, /**< unknown: always lossless */
    CKP_ROLE_WEIGHT = 1,
    CKP_ROLE_MASTER = 2,   /**< fp32 master of a low-precision weight, its owner */
    CKP_ROLE_COPY = 3,     /**< bf16 or fp16 copy of a master, its owner (none: of some master): derived and not stored where all of it is the master's rounding */
    CKP_ROLE_M = 4,        /**< first moment: Adam's, or Lion's, which has no second */
    CKP_ROLE_V = 5,        /**< Adam's second moment */
    CKP_ROLE_MOMENTUM = 6, /**< of SGD */
    CKP_ROLE_AVERAGE = 7,  /**< running average of weights (EMA, SWA): lossy profiles keep it finer than weights */
    CKP_ROLE_COUNT_
} ckp_role;

/** Name of a role, e.g. "weight". Static; NULL for an unknown value. */
CKP_API const char *ckp_role_name(ckp_role r);

/**
 * Called now and then from the calling thread of a long operation.
 * @return 0 to go on, anything else to stop with CKP_ECANCELLED.
 */
typedef int (*ckp_progress_fn)(void *user, uint64_t done_bytes, uint64_t total_bytes);

#ifdef __cplusplus
}
#endif
#endif
