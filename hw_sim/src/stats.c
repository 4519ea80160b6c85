/* stats.c: what the events add up to, by layer. */
#include "stats.h"

#include <string.h>

#include "event.h"
#include "machine.h"
#include "trace.h"

void wia_event_raise(wia_sim_t *sim, wia_sim_event_t *event)
{
    wia_sim_counters_t *counters = wia_stats_select(sim, event->offset);

    wia_timing_event(sim, counters, event);
    wia_stats_count(sim, counters, event);
    if (sim->trace != NULL)
        wia_trace_event(sim, event);
    if (sim->observer != NULL)
        sim->observer(sim->observer_context, event);
}

/* Span that holds `offset`, or span_count. */
static size_t find_span(const wia_sim_program_t *program, uint32_t offset)
{
    size_t low = 0, high = program->span_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2u;

        if (offset >= program->spans[middle].end)
            low = middle + 1u;
        else
            high = middle;
    }
    return low < program->span_count && offset >= program->spans[low].start ? low : program->span_count;
}

wia_sim_counters_t *wia_stats_select(wia_sim_t *sim, uint32_t offset)
{
    const wia_sim_program_t *program = &sim->program;
    size_t layer = sim->layer;

    if (layer >= program->span_count || offset < program->spans[layer].start || offset >= program->spans[layer].end)
        sim->layer = layer = find_span(program, offset);
    return layer < program->span_count ? &program->layers[layer] : &sim->outside;
}

void wia_stats_reset(wia_sim_t *sim)
{
    size_t layer;

    memset(&sim->outside, 0, sizeof sim->outside);
    memset(&sim->total, 0, sizeof sim->total);
    for (layer = 0; layer < sim->program.span_count; layer++)
        memset(&sim->program.layers[layer], 0, sizeof sim->program.layers[layer]);
    sim->layer = sim->program.span_count;
}

void wia_stats_count(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_sim_event_t *event)
{
    /* Streams that a unit reads and writes, in unit order. */
    static const uint8_t reads[] = {WIA_SIM_BYTES_EXTERNAL_READ, WIA_SIM_BYTES_ARRAY_READ, WIA_SIM_BYTES_POST_READ,
                                    WIA_SIM_BYTES_DMA_READ};
    static const uint8_t writes[] = {WIA_SIM_BYTES_DMA_WRITE, WIA_SIM_STREAMS, WIA_SIM_BYTES_POST_WRITE,
                                     WIA_SIM_BYTES_EXTERNAL_WRITE};

    if (event->kind != WIA_SIM_EVENT_PASS && event->kind != WIA_SIM_EVENT_EMPTY)
        counters->instructions++;
    if (event->unit < WIA_UNIT_COUNT) {
        counters->bytes[reads[event->unit]] += event->read_bytes;
        if (writes[event->unit] != WIA_SIM_STREAMS)
            counters->bytes[writes[event->unit]] += event->write_bytes;
    }
    counters->macs += event->macs;
    counters->skipped_macs += event->skipped_macs;
    counters->zero_tiles += event->zero_tiles;
    if (event->kind == WIA_SIM_EVENT_PASS) {
        counters->slots += event->busy_cycles * sim->target.array_rows * sim->target.array_columns;
        counters->tiles += event->rows != 0u;
    }
}

static void add(wia_sim_counters_t *sum, const wia_sim_counters_t *part)
{
    unsigned i, j;

    for (i = 0; i < WIA_SIM_UNITS; i++) {
        sum->busy[i] += part->busy[i];
        for (j = 0; j < WIA_SIM_REASONS; j++)
            sum->stall[i][j] += part->stall[i][j];
    }
    for (i = 0; i < WIA_SIM_STREAMS; i++)
        sum->bytes[i] += part->bytes[i];
    sum->cycles += part->cycles;
    sum->macs += part->macs;
    sum->skipped_macs += part->skipped_macs;
    sum->slots += part->slots;
    sum->tiles += part->tiles;
    sum->zero_tiles += part->zero_tiles;
    sum->instructions += part->instructions;
}

void wia_stats_total(const wia_sim_t *sim, wia_sim_counters_t *total)
{
    size_t layer;

    *total = sim->outside;
    for (layer = 0; layer < sim->program.span_count; layer++)
        add(total, &sim->program.layers[layer]);
}
