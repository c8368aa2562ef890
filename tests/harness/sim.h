/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A make-believe training: weights with moments that move as under Adam, and whatever other tensors a test adds. Everything comes
 * from one seed, so that two models of the same seed hold the same bits after the same number of steps.
 */
#ifndef CKP_TESTS_SIM_H
#define CKP_TESTS_SIM_H
#include <ckpress/state.h>

#define SIM_NONE UINT32_MAX

typedef enum sim_look { LOOK_PLAIN, LOOK_TRANSPOSED, LOOK_REVERSED, LOOK_EXPANDED, LOOK_PULL, LOOK_ODD_ADDRESS } sim_look;

typedef struct sim_tensor {
    char name[48];
    ckp_role role;
    uint32_t owner;
    ckp_dtype dtype;
    unsigned ndim;
    uint64_t shape[4];
    uint64_t n;
    size_t bytes;
    float *value;                /* of f32, bf16 and f16 tensors: what training works on; NULL for others */
    uint8_t *dense;              /* the logical elements, contiguous: what a lossless restore must give */
    uint8_t *live;               /* what the state shows, in the look's own order */
    sim_look look;
    int64_t strides[4];
    bool lossless;
} sim_tensor;

typedef struct sim {
    sim_tensor *t;
    uint32_t n;
    uint64_t seed, step;
    bool no_adam;                /* no constants in the state */
} sim;

sim *sim_new(uint64_t seed);
void sim_free(sim *m);
/* Returns the index. Bytes of dtypes that training does not know are random. */
uint32_t sim_add(sim *m, const char *name, ckp_role role, uint32_t owner, ckp_dtype dt, unsigned ndim, const uint64_t *shape);
/* A weight with moments: dtypes 0 for none; momentum instead of m when v is 0. Names are name, name/m, name/v. Returns the weight's index. */
uint32_t sim_add_weight(sim *m, const char *name, ckp_dtype w, ckp_dtype mm, ckp_dtype v, unsigned ndim, const uint64_t *shape);
/* Call before the first state is made. */
void sim_set_look(sim *m, uint32_t t, sim_look look);
/* One step: every float tensor moves, one byte in 64 of the others changes. */
void sim_train(sim *m);
/* Sets one element, through all the looks. */
void sim_put(sim *m, uint32_t t, uint64_t index, float value);
/* Puts float bits, e.g. of a NaN. */
void sim_put_bits(sim *m, uint32_t t, uint64_t index, uint32_t bits);
/* The state of now, with a tree of one number; freed by the caller. Aborts when it cannot be made. */
ckp_state *sim_state(const sim *m);
/* The same, with what the allocator says. */
ckp_status sim_state_try(const sim *m, ckp_state **out, ckp_error *err);
#endif
