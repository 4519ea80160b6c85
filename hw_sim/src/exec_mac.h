/* exec_mac.h: what exec_mac.c (conv and dwc) shares with the two weight formats, exec_raw.c and exec_lanes.c. */
#ifndef WIA_SIM_EXEC_MAC_H
#define WIA_SIM_EXEC_MAC_H

#include "exec.h"

/* Tiles of a work together, as far as the decoder is concerned. */
typedef struct {
    uint32_t tiles;
    uint32_t steps, cycles, bytes; /* of all of them */
    bool alike;             /* all but the first have a pass, and no number is too large */
    uint16_t most_cycles;   /* of all but the first; those of `wia_sim_steps_t` */
    uint16_t most_bytes;
    int16_t least_slack_bytes;
} wia_tile_bounds_t;

/* A conv or dwc under way. */
typedef struct {
    const uint8_t *bytes;   /* the instruction */
    const uint8_t *payload;
    wia_conv_t fields;      /* dwc has the same ones */
    uint32_t runs;          /* a dwc is one run of its taps */
    uint32_t run_rows;      /* rows of all tiles of a run */
    uint32_t slices;        /* tiles of a run */
    uint64_t tiles;         /* of all runs */
    uint64_t tile;          /* number of the current one */
    uint32_t run, slice;    /* of it */
    uint64_t positions;
    uint64_t pass_cycles;
    uint64_t pass_reads;    /* SRAM bytes that a pass reads: for each of its rows if `by_row` */
    bool by_row;
    const int8_t *ifm;      /* of position (0, 0), run 0 */
    const uint32_t *taps;   /* dwc: byte offset of each row from ifm; NULL for conv */
    bool passed;            /* there was a pass */
    wia_sim_event_t *event; /* of the current tile */
    uint8_t flags, wait, signal; /* of all tiles, of the first pass, of the last one */
    /* raw */
    uint64_t stored;        /* tiles in the payload that have not been passed yet */
    const uint8_t *weights; /* of the next one */
    uint32_t padding_bytes; /* after the last one */
    uint64_t skipped_macs;  /* that all-zero tiles save */
    /* codec lanes, decoded: */
    const wia_sim_steps_t *steps; /* of tile 0; NULL: not decoded */
    wia_tile_bounds_t bounds;
    /* of coast.h */
    uint32_t each_rows;     /* of every tile, 0 if they differ */
    bool coasts;
    bool trains;            /* many tiles at once, too */
    uint32_t counted;       /* tiles from the current one on that timing has seen already */
} wia_work_t;

/* One tile of a work. */
typedef struct {
    uint32_t rows;
    const int8_t *weights;  /* rows x columns; NULL: no pass */
    const wia_sim_steps_t *steps; /* codec lanes; NULL: raw */
    const uint16_t *words;
    bool last;              /* no tile follows; raw: no stored tile follows */
} wia_tile_t;

/* Check the payload and raise the event of the instruction. */
int wia_raw_begin(wia_sim_t *sim, wia_work_t *work);

/* The next tile, which has tile->rows rows. */
void wia_raw_tile(wia_work_t *work, wia_tile_t *tile);

int wia_lanes_work_begin(wia_sim_t *sim, wia_work_t *work);
int wia_lanes_work_tile(wia_sim_t *sim, wia_work_t *work, wia_tile_t *tile);

/* Leave out tiles of a decoded work; their steps. */
uint32_t wia_lanes_work_skip(wia_sim_t *sim, const wia_work_t *work, uint32_t tiles);
void wia_lanes_work_end(wia_sim_t *sim);

/* Count another tile; fills in its sums over the tiles before. */
void wia_tile_bounds(wia_tile_bounds_t *bounds, wia_sim_steps_t *steps);

/* Cycles before it is visible in which a pass of `busy` cycles with `chain` gives its tokens. */
static inline uint64_t wia_lead_cycles(const wia_work_t *work, uint64_t busy)
{
    return busy < work->positions ? busy : work->positions;
}

/* Rows of a slice of a run. */
static inline uint32_t wia_tile_rows(const wia_sim_t *sim, const wia_work_t *work, uint32_t slice)
{
    uint32_t left = work->run_rows - slice * sim->target.array_rows;

    return left < sim->target.array_rows ? left : sim->target.array_rows;
}

#endif
