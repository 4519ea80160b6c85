/* timing.c: the scoreboard. It sees events only and computes, in program order, when each of them happens.
 *
 * Rules and formulas: docs/ISA.md, "Timing"; the names here are those of that text. Every time depends on earlier
 * events of the program only, so one walk in program order gives the exact cycles of the decoupled machine.
 */
#include "timing.h"

#include <stdbool.h>
#include <string.h>

#include "machine.h"

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void wia_timing_reset(wia_sim_t *sim)
{
    wia_timing_t *timing = &sim->timing;

    memset(timing, 0, sizeof *timing);
    wia_fetch_reset(sim);
}

/* ---- tokens and units ---- */

static int64_t take_token(wia_timing_t *timing, unsigned from, unsigned to)
{
    wia_tokens_t *tokens = &timing->tokens[from][to];

    return tokens->at[tokens->head++]; /* the core has checked that there is one; indices wrap at 256 */
}

static void give_tokens(wia_timing_t *timing, unsigned from, uint8_t signal, int64_t at)
{
    unsigned to;

    for (to = 0; signal != 0u && to < WIA_UNIT_COUNT; to++)
        if (((uint32_t)signal >> to & 1u) != 0u) {
            wia_tokens_t *tokens = &timing->tokens[from][to];

            tokens->at[tokens->tail++] = at;
        }
}

void wia_timing_give(wia_sim_t *sim, uint8_t signal)
{
    give_tokens(&sim->timing, WIA_SIM_ARRAY, signal, sim->timing.pass_given);
}

static int64_t latency_cycles(const wia_sim_t *sim, uint8_t latency)
{
    switch (latency) {
    case WIA_SIM_LATENCY_DMA: return sim->target.dma_latency_cycles;
    case WIA_SIM_LATENCY_ARRAY: return sim->target.array_latency_cycles;
    case WIA_SIM_LATENCY_POST: return sim->target.post_latency_cycles;
    default: return 0;
    }
}

/* Put the work of `event` behind the earlier work of its unit: idle until dispatched, then wait for tokens in unit
 * order, then for earlier results, then until `ready` for `ready_reason`. Fills in start, end and visible. */
static void place_work(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event, int64_t ready,
                       unsigned ready_reason)
{
    wia_timing_t *timing = &sim->timing;
    wia_unit_t *unit = &timing->unit[event->unit];
    int64_t at = unit->end, given;
    unsigned from;

    wia_timing_stall(counters, event->unit, WIA_SIM_IDLE, &at, unit->dispatched + 1);
    for (from = 0; event->wait != 0u && from < WIA_UNIT_COUNT; from++)
        if (((uint32_t)event->wait >> from & 1u) != 0u)
            wia_timing_stall(counters, event->unit, WIA_SIM_WAIT_DMA_IN + from, &at,
                             take_token(timing, from, event->unit));
    if ((event->flags & WIA_SIM_FLAG_ORDERED) != 0)
        wia_timing_stall(counters, event->unit, WIA_SIM_ORDER, &at, unit->visible);
    wia_timing_stall(counters, event->unit, ready_reason, &at, ready);
    event->start = at;
    event->end = at + (int64_t)event->busy_cycles;
    event->visible = event->end + latency_cycles(sim, event->latency);
    unit->end = event->end;
    unit->visible = later(unit->visible, event->visible);
    counters->busy[event->unit] += event->busy_cycles;
    given = (event->flags & WIA_SIM_FLAG_CHAIN) != 0 ? event->visible - (int64_t)event->lead_cycles : event->visible;
    give_tokens(timing, event->unit, event->signal, given);
    if (event->kind == WIA_SIM_EVENT_PASS)
        timing->pass_given = given;
}

/* The unit has started its last dispatched instruction: its queue entry is free. */
static void record_start(wia_unit_t *unit, int64_t start)
{
    unit->starts[unit->last] = start;
}

/* ---- dispatcher and payload streams ---- */

/* Header bytes, then room in the queue; one cycle. */
static void dispatch(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    int64_t at = timing->dispatcher_free;

    wia_timing_stall(counters, WIA_SIM_DISPATCH, WIA_SIM_STARVED, &at,
                     wia_fetch_take(sim, counters, event->header_bytes, at));
    if (event->unit < WIA_UNIT_COUNT) {
        wia_unit_t *unit = &timing->unit[event->unit];

        if (unit->count == sim->target.fetch_queue_depth)
            wia_timing_stall(counters, WIA_SIM_DISPATCH, WIA_SIM_QUEUE, &at, unit->starts[unit->slot]);
        else
            unit->count++;
        unit->dispatched = at;
        unit->all++;
        unit->last = unit->slot;
        unit->slot = unit->slot + 1u == sim->target.fetch_queue_depth ? 0u : unit->slot + 1u;
    }
    event->dispatch = at;
    timing->dispatcher_free = at + 1;
    counters->busy[WIA_SIM_DISPATCH]++;
}

/* One cycle of a payload stream, as soon as `bytes` bytes are there. `decoder`: the weight decoder works too. */
static void stream(wia_sim_t *sim, wia_sim_counters_t *counters, uint64_t bytes, int decoder)
{
    wia_timing_t *timing = &sim->timing;
    int64_t taken = wia_fetch_take(sim, counters, bytes, timing->dispatcher_free);

    if (decoder) {
        wia_timing_stall(counters, WIA_SIM_DECODER, WIA_SIM_STARVED, &timing->decoder_end, taken);
        timing->decoder_end++;
        counters->busy[WIA_SIM_DECODER]++;
    }
    wia_timing_stall(counters, WIA_SIM_DISPATCH, WIA_SIM_STARVED, &timing->dispatcher_free, taken);
    timing->dispatcher_free++;
    counters->busy[WIA_SIM_DISPATCH]++;
}

bool wia_timing_stream(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_fetch_items_t *items, bool decoder)
{
    wia_timing_t *timing = &sim->timing;
    int64_t end, begin = timing->dispatcher_free, taken = wia_fetch_take_items(sim, counters, items, begin);
    uint64_t starved;

    if (taken == WIA_FETCH_UNKNOWN)
        return false;
    end = taken + 1;
    starved = (uint64_t)(end - begin) - items->count;
    if (decoder) {
        counters->stall[WIA_SIM_DECODER][WIA_SIM_STARVED] += starved;
        counters->busy[WIA_SIM_DECODER] += items->count;
        timing->decoder_end = end; /* they are equal during a stream */
    }
    counters->stall[WIA_SIM_DISPATCH][WIA_SIM_STARVED] += starved;
    counters->busy[WIA_SIM_DISPATCH] += items->count;
    timing->dispatcher_free = end;
    return true;
}

wia_fetch_items_t wia_timing_items(const wia_sim_t *sim, uint32_t count, uint32_t step, uint32_t bytes)
{
    int32_t width = (int32_t)sim->target.fetch_bytes_per_cycle, gain = (int32_t)step - width, all, early;
    wia_fetch_items_t items = {.count = count, .bytes = bytes, .first = bytes, .slack = INT32_MAX};

    all = (int32_t)bytes - (int32_t)(count - 1u) * width;
    items.peak = all;
    if (count > 1u) {
        early = (int32_t)(count - 2u) * gain; /* the last item but one, from the first one on */
        items.first = step;
        items.slack = gain + (early < 0 ? early : 0);
        early = (int32_t)step + (early > 0 ? early : 0);
        items.peak = all > early ? all : early;
    }
    return items;
}

/* The decoder turns to an instruction: raw begins with the mask, lanes with the first tile. */
static void begin_weights(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;

    wia_timing_stall(counters, WIA_SIM_DECODER, WIA_SIM_IDLE, &timing->decoder_end, timing->dispatcher_free);
    if ((event->flags & WIA_SIM_FLAG_LANES) == 0) {
        stream(sim, counters, event->payload_bytes, 1);
        return;
    }
    timing->payload_left = event->payload_bytes;
    timing->carried_words = event->carried_words;
}

/* Payload bytes that `words` words are, beyond what the decoder holds already. */
static uint32_t word_bytes(wia_timing_t *timing, uint32_t words)
{
    uint32_t held = words < timing->carried_words ? words : timing->carried_words;
    uint32_t bytes = 2u * (words - held);

    timing->carried_words -= held;
    bytes = bytes < timing->payload_left ? bytes : timing->payload_left;
    timing->payload_left -= bytes;
    return bytes;
}

void wia_timing_sum_up(const wia_target_t *target, wia_sim_steps_t *steps, const uint16_t *words)
{
    uint32_t step, most = target->decoder_lane_bytes_per_cycle / 2u * 2u, cycles = 0u, bytes = 0u, first = 0u;
    int32_t ahead = 0, width = (int32_t)target->fetch_bytes_per_cycle, peak = 0, slack = INT16_MAX;

    for (step = 0; step < steps->steps; step++) {
        uint32_t left = 2u * words[step], some;

        do {
            some = left < most ? left : most;
            left -= some;
            if (cycles++ == 0u)
                first = some;
            else
                slack = ahead < slack ? ahead : slack;
            bytes += some;
            ahead += (int32_t)some; /* B(i) - (i - 1) * width */
            peak = ahead > peak ? ahead : peak;
            ahead -= width;
        } while (left != 0u);
    }
    steps->cycles = (uint16_t)cycles;
    steps->bytes = (uint16_t)bytes;
    steps->first_bytes = (uint16_t)first;
    steps->peak_bytes = (uint16_t)peak;
    steps->slack_bytes = (int16_t)(slack > INT16_MIN ? slack : INT16_MIN);
}

/* Codec lanes: take a tile in one step. */
static bool steps_at_once(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    const wia_sim_steps_t *steps = event->steps;
    uint32_t carried = 2u * timing->carried_words;
    wia_fetch_items_t items = {.count = steps->cycles, .bytes = steps->bytes - carried};

    if (steps->first_bytes <= carried || items.bytes > timing->payload_left)
        return false;
    items.first = steps->first_bytes - carried;
    items.peak = (int32_t)steps->peak_bytes - (int32_t)carried;
    items.slack = (int32_t)steps->slack_bytes - (int32_t)carried;
    if ((event->flags & WIA_SIM_FLAG_LAST) != 0) { /* a word too many goes with the last step */
        int32_t all = (int32_t)timing->payload_left - (int32_t)((items.count - 1u) * sim->target.fetch_bytes_per_cycle);

        items.first += items.count == 1u ? timing->payload_left - items.bytes : 0u;
        items.bytes = timing->payload_left;
        items.peak = all > items.peak ? all : items.peak;
    }
    if (!wia_timing_stream(sim, counters, &items, true))
        return false;
    timing->carried_words = 0u;
    timing->payload_left -= items.bytes;
    return true;
}

/* Codec lanes: one cycle for every step of a tile, more for one that asks for more words than enter in a cycle. */
static void stream_steps(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    const wia_sim_steps_t *steps = event->steps;
    uint32_t step, most = sim->target.decoder_lane_bytes_per_cycle / 2u;

    event->decode_start = timing->dispatcher_free;
    for (step = steps_at_once(sim, counters, event) ? steps->steps : 0u; step < steps->steps; step++) {
        uint32_t words = event->words[step];

        for (; words > most; words -= most)
            stream(sim, counters, word_bytes(timing, most), 1);
        words = word_bytes(timing, words);
        if (step + 1u == steps->steps && (event->flags & WIA_SIM_FLAG_LAST) != 0) {
            words += timing->payload_left; /* a word too many goes with the last step */
            timing->payload_left = 0u;
        }
        stream(sim, counters, words, 1);
    }
    event->decode_end = timing->dispatcher_free;
}

static void stream_tile(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    uint32_t rows = event->rows, group = sim->target.decoder_rows_per_cycle, left = event->payload_bytes;
    wia_fetch_items_t items;

    wia_timing_stall(counters, WIA_SIM_DECODER, WIA_SIM_SHADOW, &timing->decoder_end, timing->shadow_free);
    wia_timing_stall(counters, WIA_SIM_DISPATCH, WIA_SIM_SHADOW, &timing->dispatcher_free, timing->shadow_free);
    if ((event->flags & WIA_SIM_FLAG_LANES) != 0) {
        stream_steps(sim, counters, event);
        return;
    }
    event->decode_start = timing->dispatcher_free;
    items = wia_timing_items(sim, (rows + group - 1u) / group, group * event->row_bytes, left); /* padding comes last */
    if (!wia_timing_stream(sim, counters, &items, true)) {
        for (; rows > group; rows -= group, left -= group * event->row_bytes)
            stream(sim, counters, group * event->row_bytes, 1);
        stream(sim, counters, left, 1);
    }
    event->decode_end = timing->dispatcher_free;
}

/* A payload of the dispatcher alone, `step` bytes a cycle. */
static void stream_bytes(wia_sim_t *sim, wia_sim_counters_t *counters, uint32_t left, uint32_t step)
{
    wia_fetch_items_t items = wia_timing_items(sim, (left + step - 1u) / step, step, left);

    if (wia_timing_stream(sim, counters, &items, false))
        return;
    for (; left > step; left -= step)
        stream(sim, counters, step, 0);
    stream(sim, counters, left, 0);
}

/* wtab: the table is built as its bytes come, one a cycle. */
static void stream_table(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    stream_bytes(sim, counters, event->payload_bytes, 1u);
    event->end = event->visible = sim->timing.dispatcher_free;
}

static void stream_parameters(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;

    wia_timing_stall(counters, WIA_SIM_DISPATCH, WIA_SIM_PARAMETERS, &timing->dispatcher_free, timing->set_free);
    stream_bytes(sim, counters, event->payload_bytes, sim->target.post_parameter_bytes_per_cycle);
    timing->set_ready = timing->dispatcher_free;
}

/* ---- events ---- */

static void instruction(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    int64_t ready = 0;

    dispatch(sim, counters, event);
    event->start = event->dispatch;
    event->end = event->visible = event->dispatch + 1;
    if ((event->flags & WIA_SIM_FLAG_JUMP) != 0)
        wia_fetch_restart(sim, counters, event->dispatch);
    if ((event->flags & WIA_SIM_FLAG_PASSES) != 0)
        begin_weights(sim, counters, event);
    else if (event->opcode == WIA_OP_WTAB)
        stream_table(sim, counters, event);
    else if (event->unit < WIA_UNIT_COUNT) {
        if ((event->flags & WIA_SIM_FLAG_ACTIVATES) != 0) {
            stream_parameters(sim, counters, event);
            ready = timing->set_ready;
        }
        place_work(sim, counters, event, ready, WIA_SIM_PARAMETERS);
        record_start(&timing->unit[event->unit], event->start);
        if ((event->flags & WIA_SIM_FLAG_ACTIVATES) != 0)
            timing->set_free = event->start;
    }
}

static void pass(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    int64_t ready = 0;

    if (event->rows != 0u) {
        stream_tile(sim, counters, event);
        ready = event->decode_end + sim->target.decoder_latency_cycles;
    } else if ((event->flags & WIA_SIM_FLAG_LANES) != 0) { /* now it is known that there is no tile */
        ready = timing->dispatcher_free + sim->target.decoder_latency_cycles;
    }
    event->dispatch = timing->unit[event->unit].dispatched;
    place_work(sim, counters, event, ready, WIA_SIM_WEIGHTS);
    if (event->rows != 0u)
        timing->shadow_free = event->start;
    if ((event->flags & WIA_SIM_FLAG_FIRST) != 0)
        record_start(&timing->unit[event->unit], event->start);
}

/* A tile without a pass. If it is the last one, the pass before it turns out to have been the last pass. */
static void empty(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;

    stream_steps(sim, counters, event);
    event->dispatch = timing->unit[event->unit].dispatched;
    event->start = event->decode_start;
    event->end = event->visible = event->decode_end;
    give_tokens(timing, event->unit, event->signal,
                later(timing->pass_given, event->decode_end + sim->target.decoder_latency_cycles));
}

/* halt waits for everything to be visible; then every unit has its cycles up to the end accounted for. */
static void halt(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    int64_t at;
    unsigned unit;

    dispatch(sim, counters, event);
    at = event->dispatch;
    for (unit = 0; unit < WIA_UNIT_COUNT; unit++)
        wia_timing_stall(counters, WIA_SIM_DISPATCH, WIA_SIM_DRAIN, &at, timing->unit[unit].visible);
    event->start = at;
    event->end = event->visible = at + 1;
    for (unit = 0; unit < WIA_UNIT_COUNT; unit++)
        wia_timing_stall(counters, unit, WIA_SIM_IDLE, &timing->unit[unit].end, event->end);
    wia_timing_stall(counters, WIA_SIM_DECODER, WIA_SIM_IDLE, &timing->decoder_end, event->end);
    wia_fetch_run_ahead(sim, counters, event->dispatch);
    wia_timing_stall(counters, WIA_SIM_FETCH, WIA_SIM_IDLE, &timing->fetch.next_issue, event->end);
}

void wia_timing_event(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    int64_t end;

    switch (event->kind) {
    case WIA_SIM_EVENT_PASS: pass(sim, counters, event); break;
    case WIA_SIM_EVENT_EMPTY: empty(sim, counters, event); break;
    case WIA_SIM_EVENT_HALT: halt(sim, counters, event); break;
    default: instruction(sim, counters, event); break;
    }
    end = later(later(event->visible, event->end), timing->dispatcher_free);
    if (event->kind == WIA_SIM_EVENT_HALT)
        end = event->end;
    if (end > timing->run_end) {
        counters->cycles += (uint64_t)(end - timing->run_end);
        timing->run_end = end;
    }
}
