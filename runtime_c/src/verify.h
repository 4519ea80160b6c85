/* verify.h: state of the program verifier, shared by verify.c (control flow) and verify_work.c (accesses). */
#ifndef WIA_VERIFY_H
#define WIA_VERIFY_H

#include "wia_internal.h"

/* Nested loops that any target can have. */
#define WIA_LOOPS 8u

/* Address registers that any target can have. */
#define WIA_REGISTERS 8u

typedef struct {
    uint32_t body;      /* program offset of the first instruction */
    uint32_t remaining; /* jumps back that are left */
} wia_loop_state_t;

typedef struct {
    wia_t *wia;
    const uint8_t *code;
    uint32_t code_bytes;
    uint32_t at;         /* program offset of the instruction being checked */
    uint32_t next;       /* of the one that follows it */
    uint64_t steps;      /* work that is left */
    uint32_t registers[WIA_REGISTERS];
    uint32_t register_set; /* bit r: register r has a value */
    wia_loop_state_t loops[WIA_LOOPS];
    uint32_t depth;
    uint32_t tokens[WIA_UNIT_COUNT][WIA_UNIT_COUNT]; /* [from][to] */
    bool ageo_set;
    bool pgeo_set;
    bool addp_set;
    bool lut_set;
    bool stretch; /* a fresh wtab since the last loop or endl: codec lanes may be used */
    uint32_t par_columns; /* 0: not set */
    wia_ageo_t ageo;
    wia_pgeo_t pgeo;
} wia_verifier_t;

/* An error at the instruction being checked. */
static inline int wia_refuse(const wia_verifier_t *v, int code)
{
    return wia_fail(v->wia, code, v->at, v->code[v->at], 0u);
}

/* Spend `steps` of the work limit; LOOP when it is used up. */
static inline int wia_spend(wia_verifier_t *v, uint64_t steps)
{
    if (steps >= v->steps)
        return wia_refuse(v, WIA_E_LOOP);
    v->steps -= steps;
    return WIA_OK;
}

/* Check fields, state and accesses of an instruction of a unit (not control). WIA_OK or an error. */
int wia_verify_work(wia_verifier_t *v, const uint8_t *bytes);

#endif
