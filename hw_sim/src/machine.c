/* machine.c: the public functions: life of a machine, its memories, load and run. */
#include "machine.h"

#include <string.h>

#include "exec.h"
#include "stats.h"
#include "trace.h"

enum { ALIGNMENT = 8, VECTOR_COLUMNS = 16 };
#define DEFAULT_WORK_LIMIT_CYCLES ((uint64_t)1 << 40)

typedef struct {
    uint32_t acc_stride;
    uint64_t freed_offset, acc_offset, sram_offset, bytes;
} layout_t;

static bool read_target(const wia_sim_desc_t *desc, wia_target_t *target)
{
    if (desc == NULL || desc->target == NULL)
        return false;
    wia_target_read(target, desc->target);
    return wia_target_check(target) == 0u;
}

static layout_t layout(const wia_target_t *target)
{
    layout_t out;
    uint64_t entries = (uint64_t)target->accumulator_banks * target->accumulator_entries_per_bank;
    uint64_t words = target->fetch_fifo_bytes / target->fetch_bytes_per_cycle;

    out.acc_stride = (target->array_columns + VECTOR_COLUMNS - 1u) / VECTOR_COLUMNS * VECTOR_COLUMNS;
    out.freed_offset = wia_ceil_div(sizeof(wia_sim_t), ALIGNMENT) * ALIGNMENT;
    out.acc_offset = out.freed_offset + words * sizeof(wia_freed_t);
    out.sram_offset = out.acc_offset + entries * out.acc_stride * sizeof(int32_t);
    out.bytes = wia_ceil_div(out.sram_offset + target->sram_bytes + WIA_KERNEL_SLACK, ALIGNMENT) * ALIGNMENT;
    return out;
}

size_t wia_sim_size(const wia_sim_desc_t *desc)
{
    wia_target_t target;
    layout_t sizes;

    if (!read_target(desc, &target))
        return 0;
    sizes = layout(&target);
    return sizes.bytes <= SIZE_MAX ? (size_t)sizes.bytes : 0;
}

static bool options_ok(const wia_sim_desc_t *desc)
{
    return desc->mode >= WIA_SIM_FULL && desc->mode <= WIA_SIM_COUNTS && desc->fill >= WIA_SIM_FILL_ZERO &&
           desc->fill <= WIA_SIM_FILL_NOISE && desc->kernel >= WIA_SIM_KERNEL_AUTO &&
           desc->kernel <= WIA_SIM_KERNEL_AVX512 && (desc->trace == NULL || desc->trace_bytes > 0u);
}

int wia_sim_init(wia_sim_t *sim, size_t bytes, const wia_sim_desc_t *desc)
{
    size_t needed = wia_sim_size(desc);
    const wia_kernel_t *kernel;
    layout_t sizes;

    if (sim == NULL || needed == 0u || bytes < needed || (uintptr_t)sim % ALIGNMENT != 0u || !options_ok(desc))
        return WIA_SIM_E_ARGUMENT;
    kernel = wia_kernel_choose(desc->kernel);
    if (kernel == NULL)
        return WIA_SIM_E_KERNEL;
    memset(sim, 0, sizeof *sim);
    wia_target_read(&sim->target, desc->target);
    sizes = layout(&sim->target);
    sim->acc_stride = sizes.acc_stride;
    sim->freed_offset = (size_t)sizes.freed_offset;
    sim->acc_offset = (size_t)sizes.acc_offset;
    sim->sram_offset = (size_t)sizes.sram_offset;
    sim->bytes = needed;
    sim->kernel = kernel;
    sim->mode = desc->mode;
    sim->fill = desc->fill;
    sim->noise_seed = desc->noise_seed;
    sim->work_limit = desc->work_limit_cycles != 0u ? desc->work_limit_cycles : DEFAULT_WORK_LIMIT_CYCLES;
    sim->trace = desc->trace;
    sim->trace_room = desc->trace_bytes;
    wia_sim_reset(sim);
    return WIA_SIM_OK;
}

/* splitmix64: public-domain generator by S. Vigna, here only a source of bytes that no program relies on. */
static uint64_t noise(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fill_memories(wia_sim_t *sim)
{
    unsigned char *memory = (unsigned char *)sim + sim->acc_offset;
    size_t bytes = sim->bytes - sim->acc_offset, at;
    uint64_t state = sim->noise_seed, word;

    if (sim->fill != WIA_SIM_FILL_NOISE) {
        memset(memory, sim->fill == WIA_SIM_FILL_ONES ? 0xff : 0x00, bytes);
        return;
    }
    for (at = 0; at < bytes; at += sizeof word) { /* the block is a whole number of words */
        word = noise(&state);
        memcpy(memory + at, &word, sizeof word);
    }
}

static void clear_run(wia_sim_t *sim)
{
    memset(&sim->core, 0, sizeof sim->core);
    sim->core.reg_set = 1u;
    sim->fault = WIA_SIM_OK;
    wia_timing_reset(sim);
    sim->lap.valid = false;
    sim->lap.skip = 0u;
    wia_lanes_reset(sim);
    if (!sim->known)
        wia_stats_reset(sim);
    wia_trace_reset(sim);
}

void wia_sim_reset(wia_sim_t *sim)
{
    memset(&sim->program, 0, sizeof sim->program);
    sim->loaded = sim->known = false;
    clear_run(sim);
    fill_memories(sim);
}

static bool spans_ok(const wia_sim_program_t *program)
{
    size_t i;

    if (program->span_count == 0u)
        return true;
    if (program->spans == NULL || program->layers == NULL)
        return false;
    for (i = 0; i < program->span_count; i++)
        if (program->spans[i].start > program->spans[i].end ||
            (i > 0u && program->spans[i].start < program->spans[i - 1u].end))
            return false;
    return true;
}

int wia_sim_load(wia_sim_t *sim, const wia_sim_program_t *program)
{
    size_t i;

    if (sim == NULL || program == NULL || (program->code == NULL && program->code_bytes != 0u) ||
        program->code_bytes > UINT32_MAX || (program->buffers == NULL && program->buffer_count != 0u) ||
        (uintptr_t)program->cache % ALIGNMENT != 0u || !spans_ok(program))
        return WIA_SIM_E_ARGUMENT;
    for (i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].data == NULL && program->buffers[i].bytes != 0u)
            return WIA_SIM_E_ARGUMENT;
    sim->program = *program;
    sim->loaded = true;
    return WIA_SIM_OK;
}

int wia_sim_prepare(wia_sim_t *sim)
{
    if (sim == NULL || !sim->loaded)
        return WIA_SIM_E_ARGUMENT;
    memset(&sim->core, 0, sizeof sim->core);
    wia_lanes_reset(sim);
    wia_lanes_prepare(sim);
    memset(&sim->core, 0, sizeof sim->core);
    return WIA_SIM_OK;
}

/* A fault in an iteration without events, whose counters were added as if it were whole: count again, step by step. */
static void count_again(wia_sim_t *sim)
{
    int mode = sim->mode;

    sim->mode = WIA_SIM_COUNTS;
    sim->plain = true;
    clear_run(sim);
    sim->fault = wia_exec_run(sim);
    sim->plain = false;
    sim->mode = mode;
}

/* After a run: its counters, where they are kept for later runs. */
static void finish_counters(wia_sim_t *sim)
{
    wia_sim_counters_t *total = sim->program.total;

    if (sim->known && sim->fault == WIA_SIM_OK) {
        sim->total = *total;
        return;
    }
    if (sim->known) /* they were not of this program */
        wia_stats_reset(sim);
    wia_stats_total(sim, &sim->total);
    if (total != NULL && sim->mode != WIA_SIM_FUNCTIONAL) {
        *total = sim->total;
        if (sim->fault != WIA_SIM_OK)
            memset(total, 0, sizeof *total);
    }
}

int wia_sim_run(wia_sim_t *sim)
{
    if (sim == NULL || !sim->loaded)
        return WIA_SIM_E_ARGUMENT;
    sim->known = sim->program.total != NULL && sim->program.total->cycles != 0u && sim->mode != WIA_SIM_FUNCTIONAL &&
                 sim->trace == NULL && sim->observer == NULL;
    clear_run(sim);
    if (!sim->known || sim->mode != WIA_SIM_COUNTS)
        sim->fault = wia_exec_run(sim);
    if (sim->fault != WIA_SIM_OK && sim->lap.skip != 0u)
        count_again(sim);
    finish_counters(sim);
    return sim->fault;
}

void wia_sim_stats(const wia_sim_t *sim, wia_sim_stats_t *stats)
{
    memset(stats, 0, sizeof *stats);
    stats->fault = sim->fault;
    stats->fault_offset = sim->core.offset;
    stats->work_cycles = sim->core.work;
    stats->trace_bytes = sim->trace_used;
    stats->trace_lost = sim->trace_lost;
    stats->kernel = sim->kernel->name;
    stats->total = sim->total;
}

void wia_sim_set_observer(wia_sim_t *sim, wia_sim_observer_t observer, void *context)
{
    sim->observer = observer;
    sim->observer_context = context;
}

const char *wia_sim_fault_text(int fault)
{
    static const char *const texts[WIA_SIM_FAULT_COUNT] = {
        "no fault",
        "an argument is null, too small, unaligned or unknown, or no program is loaded",
        "this processor cannot run the forced kernel",
        "unknown instruction, reserved bits or choices in use, or a token to the own unit",
        "the program ends inside an instruction or without halt",
        "the payload does not have the length or padding that the geometry asks for",
        "a field value is outside of what the target has or the arithmetic defines",
        "activation SRAM access out of range",
        "accumulator access out of range",
        "external buffer missing, accessed out of range, or written while read-only",
        "a register, geometry, parameter set or table is used before it is set",
        "loops are unbalanced, empty or nested too deep",
        "a token is taken that nobody gave, more than 255 of them are given, or some are left at halt",
        "the work limit is reached: the program does not end in time",
    };

    return fault >= 0 && fault < WIA_SIM_FAULT_COUNT ? texts[fault] : "unknown fault";
}
