/* fetch.h: the program fetch of the scoreboard: when words are issued, and when their bytes can be used.
 *
 * What matters of the FIFO is when its slots became free, in the order of the words. They are kept as runs of words, of
 * which word i of a run became free at `at` + i at the latest and word 0 exactly at `at`. One word is issued a cycle, so
 * the issue of word i of a run is max(issue of the word before, + 1, at) + i, whatever the exact times are.
 */
#ifndef WIA_SIM_FETCH_H
#define WIA_SIM_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wia_sim.h"

typedef struct {
    int64_t at;
    uint64_t words;
} wia_freed_t;

typedef struct {
    size_t position;     /* program byte that the next word starts with */
    size_t code_bytes;
    int64_t next_issue;  /* earliest issue of the next word */
    int64_t available;   /* from when on the bytes of the last issued word can be used */
    uint32_t left;       /* its bytes that are not consumed yet */
    uint32_t slots;      /* words in the FIFO */
    uint32_t empty;      /* slots that no word has taken since the start or the last jump */
    uint32_t head;       /* of the runs, in a ring of `slots`: there are never more than words */
    uint32_t runs;
} wia_fetch_t;

/* Items that one consumer takes one after the other. B(i): bytes of the first i of them, w: fetch.bytes_per_cycle. */
typedef struct {
    uint32_t count;
    uint32_t bytes;
    uint32_t first; /* B(1) */
    int32_t peak;   /* largest B(i) - (i - 1) * w */
    int32_t slack;  /* smallest B(i) - i * w but for the last item; any if there is only one */
} wia_fetch_items_t;

#define WIA_FETCH_UNKNOWN INT64_MIN

/* Cycle 0 of a run. */
void wia_fetch_reset(wia_sim_t *sim);

/* A consumer that is ready at `begin` takes the next `bytes` bytes of the path into its input register, word by
 * word as they become available, which frees their FIFO slots. Result: the cycle in which it has the last one. */
int64_t wia_fetch_take(wia_sim_t *sim, wia_sim_counters_t *counters, uint64_t bytes, int64_t begin);

/* A consumer takes items, one a cycle or as their bytes come, in one step: the cycle in which it has the last one.
 * Nothing happens and the result is WIA_FETCH_UNKNOWN if a formula for all of them together does not hold. */
int64_t wia_fetch_take_items(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_fetch_items_t *items,
                             int64_t begin);

/* Tiles that a consumer takes, one every `period` cycles from `begin` on. */
typedef struct {
    int64_t begin;
    uint64_t period;
    uint32_t tiles;
    uint32_t most_bytes;  /* of a tile */
    uint32_t late_cycles; /* word i of a tile is consumed at most so many cycles after cycle i */
    uint32_t each_bytes;  /* of every tile; 0: they are not alike, ask */
    uint32_t (*bytes_until)(const void *context, uint32_t tiles); /* of the first tiles */
    const void *context;
} wia_fetch_train_t;

/* Whether its tiles have their bytes in time once they had so for a while; `begin` and `tiles` do not matter. */
bool wia_fetch_keeps_up(const wia_sim_t *sim, const wia_fetch_train_t *train);

/* Take tiles of a train that wia_fetch_keeps_up with, if it is sure that each has its bytes when it begins; their
 * number. All of them if words are never late; else fewer, so that the others show when slots really become free. */
uint32_t wia_fetch_take_train(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_fetch_train_t *train);

/* Words that the fetch unit asks for beyond the consumed ones, up to cycle `until`: they are dropped. */
void wia_fetch_run_ahead(wia_sim_t *sim, wia_sim_counters_t *counters, int64_t until);

/* The dispatcher jumps in cycle `at`: fetch starts anew in the next one, with an empty FIFO. */
void wia_fetch_restart(wia_sim_t *sim, wia_sim_counters_t *counters, int64_t at);

#endif
