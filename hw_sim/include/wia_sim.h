/* wia_sim.h: cycle-level simulator of the WIA accelerator (docs/ISA.md).
 *
 * The smallest complete loop:
 *
 *     wia_sim_desc_t desc = {0};                        all options at their defaults
 *     desc.target = target_section;                     WIA_TARGET_BYTES bytes, as in an image
 *     size_t bytes = wia_sim_size(&desc);               0: the target is unusable
 *     wia_sim_t *sim = malloc(bytes);                   the caller owns the only memory there is
 *     wia_sim_init(sim, bytes, &desc);
 *     wia_sim_buffer_t buffers[2] = {{input, input_bytes, 0}, {output, output_bytes, 1}};
 *     wia_sim_program_t program = {0};
 *     program.code = code, program.code_bytes = code_bytes, program.buffers = buffers, program.buffer_count = 2;
 *     wia_sim_load(sim, &program);
 *     int fault = wia_sim_run(sim);                     WIA_SIM_OK, or what the machine stopped for
 *     wia_sim_stats_t stats;
 *     wia_sim_stats(sim, &stats);
 *
 * The simulator allocates nothing, prints nothing and keeps no globals. Any program is safe to run: what the
 * machine does not define is a fault. Pointers in wia_sim_program_t must stay valid until the next load.
 */
#ifndef WIA_SIM_H
#define WIA_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cdef begin: hw_sim/build.py gives this part to cffi, so it holds no other preprocessor lines */

/* What a program can do wrong, and what a caller can. */
enum {
    WIA_SIM_OK = 0,
    WIA_SIM_E_ARGUMENT = 1,  /* null, too small or unaligned block, bad target, no program, unknown option */
    WIA_SIM_E_KERNEL = 2,    /* this processor cannot run the forced kernel */
    WIA_SIM_E_OPCODE = 3,    /* unknown instruction, reserved bit or reserved choice, token to the own unit */
    WIA_SIM_E_END = 4,       /* instruction or payload runs past the end of the program */
    WIA_SIM_E_PAYLOAD = 5,   /* payload does not have the length or the padding that its geometry asks for */
    WIA_SIM_E_FIELD = 6,     /* field value outside of what the target has or the arithmetic defines */
    WIA_SIM_E_SRAM = 7,      /* activation SRAM access out of range */
    WIA_SIM_E_ACC = 8,       /* accumulator access out of range */
    WIA_SIM_E_EXTERNAL = 9,  /* external buffer missing, accessed out of range, or written while read-only */
    WIA_SIM_E_UNSET = 10,    /* geometry, parameters or table used before they were set */
    WIA_SIM_E_LOOP = 11,     /* endl without loop, loop too deep, halt inside a loop */
    WIA_SIM_E_TOKEN = 12,    /* token taken that nobody gave, more than 255 of them, or some left at halt */
    WIA_SIM_E_LIMIT = 13,    /* work_limit_cycles reached */
    WIA_SIM_FAULT_COUNT = 14
};

enum {
    WIA_SIM_FULL = 0,       /* results and cycles */
    WIA_SIM_FUNCTIONAL = 1, /* results only: every counter but the fault stays zero */
    WIA_SIM_COUNTS = 2      /* the cycles of WIA_SIM_FULL without arithmetic: memories keep their content */
};

enum { WIA_SIM_FILL_ZERO = 0, WIA_SIM_FILL_ONES = 1, WIA_SIM_FILL_NOISE = 2 };

/* Inner kernels; all give equal bytes. AUTO takes the last one that the processor can run. */
enum { WIA_SIM_KERNEL_AUTO = 0, WIA_SIM_KERNEL_PORTABLE = 1, WIA_SIM_KERNEL_AVX2 = 2, WIA_SIM_KERNEL_AVX512 = 3 };

/* The four units with tokens in token-bit order, then the front end. */
enum {
    WIA_SIM_DMA_IN = 0,
    WIA_SIM_ARRAY = 1,
    WIA_SIM_POST = 2,
    WIA_SIM_DMA_OUT = 3,
    WIA_SIM_DISPATCH = 4,
    WIA_SIM_DECODER = 5,
    WIA_SIM_FETCH = 6,
    WIA_SIM_UNITS = 7
};

/* Why a unit did not work in a cycle. The four token reasons are in unit order. */
enum {
    WIA_SIM_WAIT_DMA_IN = 0,
    WIA_SIM_WAIT_ARRAY = 1,
    WIA_SIM_WAIT_POST = 2,
    WIA_SIM_WAIT_DMA_OUT = 3,
    WIA_SIM_IDLE = 4,       /* nothing was dispatched to it */
    WIA_SIM_WEIGHTS = 5,    /* array: the next tile is not decoded */
    WIA_SIM_ORDER = 6,      /* an earlier instruction of the same unit is not visible yet */
    WIA_SIM_PARAMETERS = 7, /* post: still streaming in; dispatcher: the shadow set is taken */
    WIA_SIM_STARVED = 8,    /* dispatcher, decoder: the program bytes are not there */
    WIA_SIM_QUEUE = 9,      /* dispatcher: the queue of the unit is full */
    WIA_SIM_SHADOW = 10,    /* dispatcher, decoder: the array still needs the shadow weights */
    WIA_SIM_FIFO = 11,      /* fetch: the FIFO is full */
    WIA_SIM_DRAIN = 12,     /* dispatcher: halt waits for the units */
    WIA_SIM_REASONS = 13
};

/* Byte streams. */
enum {
    WIA_SIM_BYTES_FETCHED = 0,  /* program bytes requested, also those that a jump drops */
    WIA_SIM_BYTES_CONSUMED = 1, /* program bytes executed: headers and payloads along the path */
    WIA_SIM_BYTES_ARRAY_READ = 2,
    WIA_SIM_BYTES_POST_READ = 3,
    WIA_SIM_BYTES_POST_WRITE = 4,
    WIA_SIM_BYTES_DMA_WRITE = 5, /* SRAM bytes written by load and fill */
    WIA_SIM_BYTES_DMA_READ = 6,  /* SRAM bytes read by store */
    WIA_SIM_BYTES_EXTERNAL_READ = 7,
    WIA_SIM_BYTES_EXTERNAL_WRITE = 8,
    WIA_SIM_STREAMS = 9
};

typedef struct {
    uint64_t cycles; /* of the run; of a layer: how far its instructions moved the end of the run */
    uint64_t busy[7];       /* by unit */
    uint64_t stall[7][13];  /* by unit and reason; busy + stalls of a unit = cycles of the run */
    uint64_t bytes[9];      /* by stream */
    uint64_t macs;          /* multiplications by weights of stored tiles, weights of zero included */
    uint64_t skipped_macs;  /* multiplications that all-zero tiles saved */
    uint64_t slots;         /* multipliers of the array times the cycles of its passes */
    uint64_t tiles;
    uint64_t zero_tiles;
    uint64_t instructions;
} wia_sim_counters_t;

typedef struct {
    int fault;             /* result of the last run */
    uint32_t fault_offset; /* program byte offset of the instruction that faulted */
    uint64_t work_cycles;  /* what work_limit_cycles counts */
    uint64_t trace_bytes;  /* text in the trace buffer, without the final zero */
    uint64_t trace_lost;   /* lines that did not fit */
    const char *kernel;    /* name of the inner kernel */
    wia_sim_counters_t total;
} wia_sim_stats_t;

/* Codec lanes: what the decoder asks for in the steps of a tile, and what follows from that for a stream of which every
 * cycle has its bytes in time. B(i): bytes of the first i cycles, w: fetch.bytes_per_cycle. The sums over the tiles before
 * it in its instruction let tiles be taken together. */
typedef struct {
    uint8_t steps;
    uint8_t passes;         /* the tile has a pass */
    uint16_t cycles;        /* of the decoder: a step has one more for each decoder.lane_bytes_per_cycle beyond the first */
    uint16_t bytes;         /* of all steps */
    uint16_t first_bytes;   /* B(1) */
    uint16_t peak_bytes;    /* largest B(i) - (i - 1) * w */
    int16_t slack_bytes;    /* smallest B(i) - i * w but for the last cycle, -32768 if less */
    uint32_t steps_before;
    uint32_t cycles_before;
    uint32_t bytes_before;
} wia_sim_steps_t;

/* One step of one unit: what the functional core says, and when the timing model lets it happen. */
typedef struct {
    uint8_t kind;            /* WIA_SIM_EVENT_* */
    uint8_t unit;            /* WIA_SIM_DMA_IN .. WIA_SIM_DISPATCH */
    uint8_t opcode;
    uint8_t wait;            /* units to take a token from */
    uint8_t signal;          /* units to give a token to */
    uint8_t flags;           /* WIA_SIM_FLAG_* */
    uint8_t latency;         /* WIA_SIM_LATENCY_*: from end to visible */
    uint32_t offset;         /* program byte offset of the instruction */
    uint32_t header_bytes;   /* instruction event: bytes without payload */
    uint32_t payload_bytes;  /* instruction event: mask, parameters or table, with codec lanes all; pass event: tile with
                              * its padding, 0 with codec lanes */
    uint32_t rows;           /* pass event: rows to decode, 0 if the pass needs no tile */
    uint32_t row_bytes;      /* pass event: bytes of one of these rows */
    const wia_sim_steps_t *steps; /* codec lanes, pass and empty event */
    const uint16_t *words;   /* 16-bit words asked for in each of these steps */
    uint32_t carried_words;  /* instruction event of codec lanes: words that the decoder holds already */
    uint64_t busy_cycles;    /* occupancy of the unit */
    uint64_t lead_cycles;    /* pass event with WIA_SIM_FLAG_CHAIN: tokens are given that long before visible */
    uint64_t read_bytes;     /* SRAM, for load external */
    uint64_t write_bytes;    /* SRAM, for store external */
    uint64_t macs;
    uint64_t skipped_macs;
    uint32_t zero_tiles;
    /* filled in by the timing model; cycles from the start of the run */
    int64_t dispatch;        /* instruction event: cycle of dispatch */
    int64_t decode_start;    /* pass event with rows > 0, empty event */
    int64_t decode_end;
    int64_t start;           /* first cycle of work in the unit */
    int64_t end;             /* first cycle after it */
    int64_t visible;         /* results and tokens may be used from here on */
} wia_sim_event_t;

enum {
    WIA_SIM_EVENT_INSTRUCTION = 0, /* dispatched; also done, if no pass events follow */
    WIA_SIM_EVENT_PASS = 1,        /* one pass of the array, with or without a tile */
    WIA_SIM_EVENT_HALT = 2,        /* the run is over */
    WIA_SIM_EVENT_EMPTY = 3        /* codec lanes: a tile without a pass goes through the decoder */
};

enum {
    WIA_SIM_FLAG_FIRST = 1,     /* pass: takes the tokens of its instruction */
    WIA_SIM_FLAG_LAST = 2,      /* pass, empty: no tile follows; gives the tokens of its instruction */
    WIA_SIM_FLAG_CHAIN = 4,     /* pass: gives them early */
    WIA_SIM_FLAG_ORDERED = 8,   /* starts after every earlier instruction of the unit is visible */
    WIA_SIM_FLAG_JUMP = 16,     /* endl that jumps back */
    WIA_SIM_FLAG_PASSES = 32,   /* instruction: pass events follow */
    WIA_SIM_FLAG_ACTIVATES = 64, /* par, lut: its start frees the shadow set */
    WIA_SIM_FLAG_LANES = 128    /* instruction, pass, empty: of codec lanes */
};

enum { WIA_SIM_LATENCY_NONE = 0, WIA_SIM_LATENCY_DMA = 1, WIA_SIM_LATENCY_ARRAY = 2, WIA_SIM_LATENCY_POST = 3 };

/* Called once per event, in program order. Not called in WIA_SIM_FUNCTIONAL. */
typedef void (*wia_sim_observer_t)(void *context, const wia_sim_event_t *event);

typedef struct {
    const uint8_t *target;      /* WIA_TARGET_BYTES bytes: little-endian numbers in table order */
    int mode;
    int fill;                   /* content of SRAM and accumulators after init and reset */
    uint64_t noise_seed;        /* of WIA_SIM_FILL_NOISE */
    int kernel;
    uint64_t work_limit_cycles; /* busy cycles of all units together before WIA_SIM_E_LIMIT; 0: 2^40 */
    char *trace;                /* text, one line per event; NULL: none. Zero-terminated */
    size_t trace_bytes;         /* size of that buffer */
} wia_sim_desc_t;

typedef struct {
    void *data; /* may be NULL if bytes is 0 */
    size_t bytes;
    int writable;
} wia_sim_buffer_t;

/* Program bytes [start, end) of one layer. */
typedef struct {
    uint32_t start;
    uint32_t end;
} wia_sim_span_t;

typedef struct {
    const uint8_t *code;
    size_t code_bytes;
    const wia_sim_buffer_t *buffers; /* by binding number */
    size_t buffer_count;
    /* NULL, or the counters of the whole run. Cycles follow from the program alone, so once is enough: if `cycles` is
     * not zero, this and `layers` come from an earlier run with the same machine, code, spans and sizes of buffers. They
     * stay as they are, and the run gives results only; WIA_SIM_COUNTS has nothing to do then. Zero them for other code.
     * Of no use with a trace or an observer. */
    wia_sim_counters_t *total;
    const wia_sim_span_t *spans;     /* sorted, not overlapping; NULL: no attribution */
    wia_sim_counters_t *layers;      /* one per span, zeroed and filled by run */
    size_t span_count;
    void *cache;                     /* for decoded weights of codec lanes, 8-byte aligned, zeros (its first 32 bytes
                                      * are enough) before the first load of `code`, and then left to simulators of
                                      * this code, one at a time; NULL: decode again in every iteration and run */
    size_t cache_bytes;
} wia_sim_program_t;

typedef struct wia_sim wia_sim_t;

/* Bytes of the state block for this description; 0 if desc or its target is unusable. */
size_t wia_sim_size(const wia_sim_desc_t *desc);

/* Make `sim` (at least 8-byte aligned) a machine after reset. WIA_SIM_OK, _E_ARGUMENT or _E_KERNEL. */
int wia_sim_init(wia_sim_t *sim, size_t bytes, const wia_sim_desc_t *desc);

/* Fill the memories as the description says, forget program and counters. The observer stays. */
void wia_sim_reset(wia_sim_t *sim);

/* Set program and buffers of the next runs. WIA_SIM_OK or WIA_SIM_E_ARGUMENT. */
int wia_sim_load(wia_sim_t *sim, const wia_sim_program_t *program);

/* Bytes of a cache that holds all decoded weights of `code`; 0: no use for one. */
size_t wia_sim_cache_size(const wia_sim_desc_t *desc, const uint8_t *code, size_t code_bytes);

/* Decode the weights of the loaded program into its cache now, so that no run has to; of no use without one. A cache that
 * another machine has filled does as well, if both have a decoder of the same size: one for the same target but for widths
 * and latencies, and in WIA_SIM_COUNTS one for any mode. WIA_SIM_OK or WIA_SIM_E_ARGUMENT. */
int wia_sim_prepare(wia_sim_t *sim);

/* Run the program from its start to halt; memories keep what an earlier run left. WIA_SIM_OK or the fault. */
int wia_sim_run(wia_sim_t *sim);

/* Counters of the last run. */
void wia_sim_stats(const wia_sim_t *sim, wia_sim_stats_t *stats);

/* Have every event of later runs shown to `observer`; NULL ends that. */
void wia_sim_set_observer(wia_sim_t *sim, wia_sim_observer_t observer, void *context);

/* One clause for a WIA_SIM_* result; never NULL. */
const char *wia_sim_fault_text(int fault);

/* cdef end */

#ifdef __cplusplus
}
#endif

#endif
