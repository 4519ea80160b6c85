/* timing.h: state of the scoreboard. All times are cycles from the start of the run. */
#ifndef WIA_SIM_TIMING_H
#define WIA_SIM_TIMING_H

#include <stddef.h>
#include <stdint.h>

#include "fetch.h"
#include "wia/gen/wia_isa.h"
#include "wia/gen/wia_target.h"
#include "wia_sim.h"

enum { WIA_TOKENS = 256 }; /* a counter holds up to 255 tokens */

typedef struct {
    int64_t dispatched;  /* of the instruction at work: it may start one cycle later */
    int64_t end;         /* first cycle after the last work */
    int64_t visible;     /* when everything so far is visible */
    uint64_t count;      /* instructions dispatched */
    int64_t starts[WIA_TARGET_FETCH_QUEUE_DEPTH_MAX]; /* of the last ones, by count modulo queue depth */
} wia_unit_t;

/* Times at which tokens were given, oldest at `head`. */
typedef struct {
    int64_t at[WIA_TOKENS];
    uint8_t head;
    uint8_t tail;
} wia_tokens_t;

typedef struct {
    wia_fetch_t fetch;
    int64_t dispatcher_free; /* end of the dispatcher's last work: instruction or payload stream */
    int64_t decoder_end;     /* end of the decoder's last work */
    int64_t shadow_free;     /* when the shadow weight buffer may be overwritten */
    uint32_t payload_left;   /* codec lanes: bytes of the payload that are not taken */
    uint32_t carried_words;  /* and words that the decoder holds already */
    int64_t pass_given;      /* when the tokens of the last pass are given if it is the last of its instruction */
    int64_t set_free;        /* when the shadow parameter set may be overwritten */
    int64_t set_ready;       /* when the parameters streamed last are complete */
    int64_t run_end;         /* latest time of anything so far */
    wia_unit_t unit[WIA_UNIT_COUNT];
    wia_tokens_t tokens[WIA_UNIT_COUNT][WIA_UNIT_COUNT]; /* [from][to] */
} wia_timing_t;

/* Cycle 0 of a run. */
void wia_timing_reset(wia_sim_t *sim);

/* Fill in the cycles of `event`; stalls and busy cycles go to `counters`. */
void wia_timing_event(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event);

/* Fill in what follows from `steps` and `words`. */
void wia_timing_sum_up(const wia_target_t *target, wia_sim_steps_t *steps);

#endif
