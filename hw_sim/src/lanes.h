/* lanes.h: the weight decoder of codec lanes (docs/ISA.md, "Payloads"), one tile at a time.
 *
 *     wia_lanes_init(lanes, columns, rows_per_cycle, WIA_SIM_KERNEL_AUTO);
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

/* The table for kernels that need no values, see lanes_words_avx2.c. */
typedef struct {
    uint8_t shortest;   /* length of the shortest code word */
    uint8_t limits;
    int16_t limit[WIA_LANES_CODE_BITS]; /* a code word is longer for each that the next 16 bits - 32768 are above */
    uint8_t place[16];  /* by length: with a code word added, its place in `entry`, modulo 256 */
    uint8_t entry[WIA_LANES_CLASSES];   /* WIA_LANES_BRIEF_* and length of the symbol modulo 16, as in `sorted` */
} wia_lanes_brief_t;

enum {
    WIA_LANES_BRIEF_ZEROS_BIT = 5,      /* it is no value */
    WIA_LANES_BRIEF_LONG_BIT = 7,       /* its length is 16 */
    WIA_LANES_BRIEF_ZEROS = 1 << WIA_LANES_BRIEF_ZEROS_BIT,
    WIA_LANES_BRIEF_LONG = 1 << WIA_LANES_BRIEF_LONG_BIT
};

struct wia_lanes {
    /* of the machine */
    const wia_kernel_t *kernel;
    uint32_t array_columns;
    uint32_t rows_per_cycle;

    /* of the last wtab */
    bool masks;
    int32_t centre;
    uint32_t table[1u << WIA_LANES_CODE_BITS]; /* WIA_LANES_ENTRY of the first symbol, by the next bits of a lane */
    /* The same without the table, by length of the code word: */
    uint32_t limit[WIA_LANES_CODE_BITS + 1]; /* the next bits are below it unless the code word is longer */
    uint32_t place[16];                      /* with a code word added, its place in `sorted`, modulo 2^32 */
    uint32_t sorted[WIA_LANES_CLASSES];      /* entries in the order of their code words */
    wia_lanes_brief_t brief;
    uint32_t remembered[WIA_LANES_SLOTS];      /* row masks, row 0 in bit 31 */

    /* of the stretch */
    uint64_t control;                /* the control lane: its next bit is bit 63 */
    uint32_t control_held;           /* bits in it */
    uint32_t next[WIA_LANES];        /* the next bits of a lane, the very next one in bit 31 */
    uint32_t after[WIA_LANES];       /* those that follow; zero beyond what is held */
    uint32_t held[WIA_LANES];        /* bits in both */
    bool dry;                        /* a payload ended early: only the end of a stretch may */
    bool carries;                    /* a word of the last payload is left: `carried` */
    uint8_t carried[2];

    /* of the instruction */
    uint32_t columns;
    uint32_t tile;                   /* number of the next tile, modulo WIA_LANES_SLOTS */
    uint32_t live_columns;           /* bit per column */
    bool first;                      /* before the first tile */
    bool has_payload;
    int32_t live[WIA_KERNEL_COLUMNS]; /* -1 for each of them, 0 for others and beyond the last column */
    uint32_t idle[WIA_LANES];        /* zeros that are left of a run */
    wia_lanes_source_t source;
};

/* A table entry: bits 0..4 length of the symbol, 8..13 32 - its extra bits, 16..19 length of its code word, 20..21 kind,
 * 24..31 magnitude - 1 or zeros. */
enum { WIA_LANES_VALUE = 0, WIA_LANES_RUN = 1, WIA_LANES_REST = 2 };
#define WIA_LANES_FOREVER UINT32_MAX /* zeros of kind WIA_LANES_REST that are left */
#define WIA_LANES_NOT_YET UINT32_MAX /* of wia_kernel_t.lanes_row: a lane needs two words, nothing is done */
enum { WIA_LANES_BITS = 32, WIA_LANES_WORD_BITS = 16 }; /* a lane takes words until it holds so many bits */

/* cdef begin: hw_sim/build.py gives this part to cffi too; Python checks payloads with it */

typedef struct wia_lanes wia_lanes_t;

size_t wia_lanes_size(void);

/* kernel: WIA_SIM_KERNEL_*; all decode alike. */
void wia_lanes_init(wia_lanes_t *lanes, uint32_t array_columns, uint32_t rows_per_cycle, int kernel);

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
 * (nothing if there is no pass; NULL: they are not asked for), `words` the 16-bit words asked for in each of its
 * max(1, groups) steps. */
uint32_t wia_lanes_tile(wia_lanes_t *lanes, uint32_t rows, int8_t *values, uint16_t *words);

/* After the last tile. Result: the payload is one that an encoder can make. */
bool wia_lanes_end(wia_lanes_t *lanes);

/* wia_kernel_t.lanes_row, lanes_words and lanes_tile of the processors that have one. */
#if defined(__x86_64__) || defined(__i386__)
uint32_t wia_lanes_row_avx2(wia_lanes_t *lanes, uint32_t first, int8_t *values);
uint32_t wia_lanes_row_avx512(wia_lanes_t *lanes, uint32_t first, int8_t *values);
uint32_t wia_lanes_words_avx2(wia_lanes_t *lanes, uint32_t rows, uint32_t live_rows, uint16_t *words);
uint32_t wia_lanes_tile_avx512(wia_lanes_t *lanes, uint32_t rows, uint32_t live_rows, int8_t *values, uint16_t *words);
#endif

#endif
