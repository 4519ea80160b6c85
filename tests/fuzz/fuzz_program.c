/* fuzz_program.c: any bytes as a program for the simulator.
 *
 * Input: byte 0 chooses a target, byte 1 the memories' content, byte 2 the kernel, the rest is the program. Besides
 * what the sanitizers find, five things must hold: every mode stops with the same fault at the same place, results
 * do not depend on timing, cycles do not depend on arithmetic, nor on an observer (without one, tiles are taken together),
 * a second run with the cache of the first one is equal.
 *
 * libFuzzer: clang -fsanitize=fuzzer,address,undefined -Ihw_sim/include -Iruntime_c/include tests/fuzz/fuzz_program.c
 * and the C files of hw_sim/src but main.c; with any compiler: add tests/fuzz/replay.c and name the inputs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wia/gen/wia_target.h"
#include "wia_sim.h"

enum { HEADER_BYTES = 3, INPUT_BYTES = 700, OUTPUT_BYTES = 300, WORK_LIMIT_CYCLES = 1 << 16, CACHE_BYTES = 1 << 20 };

/* Rows, columns, port, accumulator entries, fetch width, queue, loop depth, registers, line buffer rows. */
static const uint32_t targets[][9] = {
    {4, 4, 4, 32, 4, 2, 4, 8, 3},
    {16, 16, 16, 64, 8, 8, 4, 8, 3},
    {32, 32, 64, 16, 64, 1, 8, 8, 15},
    {1, 1, 1, 4, 1, 1, 1, 2, 0},
    {7, 19, 23, 9, 24, 3, 2, 3, 2},
};

static void put(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
    at[2] = (uint8_t)(value >> 16);
    at[3] = (uint8_t)(value >> 24);
}

static void write_target(uint8_t *bytes, uint8_t choice)
{
    const uint32_t *n = targets[choice % (sizeof targets / sizeof targets[0])];
    const uint32_t numbers[WIA_TARGET_FIELDS] = {
        n[0], n[1], 3, 1 + choice % 2u, choice % 3u, 2u << choice % 6u, 1024 + n[0], n[2], n[8], 16, 1, n[3], 5, 4,
        n[4], choice % 40u, 64 + choice, n[5], n[6], n[7], 8, choice % 9u, 16, 4096};
    size_t i;

    for (i = 0; i < WIA_TARGET_FIELDS; i++)
        put(bytes + 4u * i, numbers[i]);
}

typedef struct {
    wia_sim_stats_t stats;
    uint8_t output[OUTPUT_BYTES];
} result_t;

static void must(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "fuzz_program: %s\n", what);
        abort();
    }
}

static void look(void *context, const wia_sim_event_t *event)
{
    *(uint64_t *)context += (uint64_t)event->end;
}

/* `share`: quarters of the cache that the program has use for. With a cache the program runs twice. */
static void run(const uint8_t *data, size_t size, int mode, int kernel, unsigned share, int observed, result_t *out)
{
    uint64_t seen = 0;
    uint8_t target[WIA_TARGET_BYTES];
    uint8_t *input = calloc(INPUT_BYTES, 1), *output = calloc(OUTPUT_BYTES, 1);
    wia_sim_buffer_t buffers[3] = {{NULL, INPUT_BYTES, 0}, {NULL, OUTPUT_BYTES, 1}, {NULL, 0, 1}};
    wia_sim_program_t program = {.code = data + HEADER_BYTES, .code_bytes = size - HEADER_BYTES, .buffers = buffers,
                                 .buffer_count = 3};
    wia_sim_desc_t desc;
    wia_sim_t *sim;
    size_t bytes;
    unsigned runs;

    memset(&desc, 0, sizeof desc);
    write_target(target, data[0]);
    desc.target = target;
    desc.mode = mode;
    desc.fill = data[1] % 3;
    desc.kernel = kernel;
    desc.work_limit_cycles = WORK_LIMIT_CYCLES;
    bytes = wia_sim_size(&desc);
    must(bytes != 0u, "the target is refused");
    sim = malloc(bytes);
    must(sim != NULL && input != NULL && output != NULL, "no memory");
    must(wia_sim_init(sim, bytes, &desc) == WIA_SIM_OK, "init failed");
    wia_sim_set_observer(sim, observed ? look : NULL, &seen);
    buffers[0].data = input;
    buffers[1].data = output;
    program.cache_bytes = wia_sim_cache_size(&desc, program.code, program.code_bytes);
    program.cache_bytes = program.cache_bytes < CACHE_BYTES ? program.cache_bytes / 4u * share : CACHE_BYTES;
    program.cache = share != 0u ? calloc(program.cache_bytes + 1u, 1u) : NULL; /* that its end is where it ends */
    for (runs = share != 0u ? 2u : 1u; runs > 0u; runs--) {
        wia_sim_reset(sim);
        memset(output, 0, OUTPUT_BYTES);
        must(wia_sim_load(sim, &program) == WIA_SIM_OK, "load failed");
        if (data[2] / 3u % 2u != 0u)
            must(wia_sim_prepare(sim) == WIA_SIM_OK, "prepare failed");
        wia_sim_run(sim);
    }
    wia_sim_stats(sim, &out->stats);
    memcpy(out->output, output, OUTPUT_BYTES);
    free(program.cache);
    free(sim);
    free(input);
    free(output);
}

static int usable(int kernel)
{
    uint8_t target[WIA_TARGET_BYTES];
    wia_sim_desc_t desc;
    wia_sim_t *sim;
    size_t bytes;
    int fault;

    memset(&desc, 0, sizeof desc);
    write_target(target, 0);
    desc.target = target;
    desc.kernel = kernel;
    bytes = wia_sim_size(&desc);
    sim = malloc(bytes);
    fault = wia_sim_init(sim, bytes, &desc);
    free(sim);
    return fault == WIA_SIM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static result_t full, observed, functional, counts;
    int kernel;

    if (size < HEADER_BYTES)
        return 0;
    kernel = WIA_SIM_KERNEL_PORTABLE + data[2] % 3;
    kernel = usable(kernel) ? kernel : WIA_SIM_KERNEL_PORTABLE;
    run(data, size, WIA_SIM_FULL, kernel, data[1] / 12u % 5u, 0, &full);
    run(data, size, WIA_SIM_FULL, kernel, 0u, 1, &observed);
    run(data, size, WIA_SIM_FUNCTIONAL, WIA_SIM_KERNEL_PORTABLE, 4u, 0, &functional);
    run(data, size, WIA_SIM_COUNTS, kernel, 1u + data[1] / 3u % 4u, 0, &counts);
    must(full.stats.fault == functional.stats.fault && full.stats.fault == counts.stats.fault, "faults differ");
    must(full.stats.fault_offset == functional.stats.fault_offset &&
         full.stats.fault_offset == counts.stats.fault_offset, "places of the fault differ");
    must(memcmp(full.output, functional.output, OUTPUT_BYTES) == 0, "results depend on timing or kernel");
    must(memcmp(&full.stats.total, &observed.stats.total, sizeof full.stats.total) == 0 &&
         memcmp(full.output, observed.output, OUTPUT_BYTES) == 0, "cycles or results depend on an observer");
    must(memcmp(&full.stats.total, &counts.stats.total, sizeof full.stats.total) == 0,
         "cycles depend on arithmetic");
    return 0;
}
