/* lanes.h: the weight decoder of codec lanes (docs/ISA.md, "Payloads"), one tile at a time.
 *
 *     wia_lanes_init(lanes, columns, rows_per_cycle);
 *     wia_lanes_set_table(lanes, payload, centre, masks, fresh);         a wtab
 *     wia_lanes_begin(lanes, payload, bytes, columns);                   a conv or dwc, whose tiles follow:
 *     groups = wia_lanes_tile(lanes, rows, values, words);
 *     ok = wia_lanes_end(lanes);
 *
 * Any bits decode: what is asked for beyond the payload reads as zero, words that nobody asks for are dropped, and no
 * symbol can be longer than what a lane holds.
 */
#ifndef WIA_SIM_LANES_H
#define WIA_SIM_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"
#include "wia/gen/wia_isa.h"
#include "wia/gen/wia_target.h"

enum {
    WIA_LANES = WIA_TARGET_ARRAY_COLUMNS_MAX * WIA_TARGET_DECODER_ROWS_PER_CYCLE_MAX, /* weight lanes */
    WIA_LANES_CLASSES = 32,
    WIA_LANES_CODE_BITS = 11,
    WIA_LANES_SLOTS = 256,                  /* row masks that are remembered */
    WIA_LANES_STEPS = WIA_KERNEL_LANES + 1  /* largest number of steps of a tile */
};

/* Words of the program that a decoder has not taken yet: the carried one, then a payload. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    const uint8_t *payload;     /* follows after `end`; NULL: nothing does */
    const uint8_t *payload_end;
    bool exhausted;             /* more was asked for */
} wia_lanes_source_t;

struct wia_lanes {
    /* of the machine */
    uint32_t array_columns;
    uint32_t rows_per_cycle;

    /* of the last wtab */
    bool masks;
    int32_t centre;
    uint32_t table[1u << WIA_LANES_CODE_BITS]; /* by the next bits of a lane: what the first symbol in them is */
    uint32_t remembered[WIA_LANES_SLOTS];      /* row masks, row 0 in bit 31 */

    /* of the stretch */
    uint64_t control;                /* the control lane: its next bit is bit 63 */
    uint32_t control_held;           /* bits in it */
    uint64_t lane[WIA_LANES];
    uint8_t held[WIA_LANES];
    bool dry;                        /* a payload ended early: only the end of a stretch may */
    bool carries;                    /* a word of the last payload is left: `carried` */
    uint8_t carried[2];

    /* of the instruction */
    uint32_t columns;
    uint32_t tile;                   /* number of the next tile, modulo WIA_LANES_SLOTS */
    uint32_t live_columns;           /* bit per column */
    bool first;                      /* before the first tile */
    bool has_payload;
    uint32_t idle[WIA_LANES];        /* zeros that are left of a run */
    wia_lanes_source_t source;
};

/* cdef begin: hw_sim/build.py gives this part to cffi too; Python checks payloads with it */

typedef struct wia_lanes wia_lanes_t;

size_t wia_lanes_size(void);

void wia_lanes_init(wia_lanes_t *lanes, uint32_t array_columns, uint32_t rows_per_cycle);

/* The 16 bytes of a wtab payload are a complete prefix code. */
bool wia_lanes_table_ok(const uint8_t *payload);

/* wtab with a table that wia_lanes_table_ok accepts; the first one must be fresh. */
void wia_lanes_set_table(wia_lanes_t *lanes, const uint8_t *payload, int32_t centre, bool masks, bool fresh);

/* A whole conv or dwc: `runs` runs of `run_rows` rows in tiles of `tile_rows` (array.rows). `values` gets rows x columns
 * weights, zeros for tiles without a pass. Result: the payload is one that an encoder can make. */
bool wia_lanes_decode(wia_lanes_t *lanes, const uint8_t *payload, size_t bytes, uint32_t columns, uint32_t runs,
                       uint32_t run_rows, uint32_t tile_rows, int8_t *values);

/* cdef end */

/* Go on with the payload of a conv or dwc. */
void wia_lanes_begin(wia_lanes_t *lanes, const uint8_t *payload, size_t bytes, uint32_t columns);

/* Row groups of the next tile, which has `rows` rows; 0 if it has no pass. `values` gets its rows * columns weights
 * (nothing if there is no pass), `words` the 16-bit words asked for in each of its max(1, groups) steps. */
uint32_t wia_lanes_tile(wia_lanes_t *lanes, uint32_t rows, int8_t *values, uint16_t *words);

/* After the last tile. Result: the payload is one that an encoder can make. */
bool wia_lanes_end(wia_lanes_t *lanes);

#endif
