/* timing.c: the scoreboard. It sees events only and computes, in program order, when each of them happens.
 *
 * Rules and formulas: docs/ISA.md, "Timing"; the names here are those of that text. Every time depends on earlier
 * events of the program only, so one walk in program order gives the exact cycles of the decoupled machine.
 */
#include "timing.h"

#include <string.h>

#include "machine.h"

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Count the cycles from *at until `until` as a stall of `unit`, if there are any, and move *at there. */
static void stall(wia_sim_counters_t *counters, unsigned unit, unsigned reason, int64_t *at, int64_t until)
{
    if (until > *at) {
        counters->stall[unit][reason] += (uint64_t)(until - *at);
        *at = until;
    }
}

void wia_timing_reset(wia_sim_t *sim)
{
    wia_timing_t *timing = &sim->timing;

    memset(timing, 0, sizeof *timing);
    timing->fetch.code_bytes = sim->program.code_bytes;
    timing->fetch.slots = sim->target.fetch_fifo_bytes / sim->target.fetch_bytes_per_cycle;
}

/* ---- fetch ---- */

/* Count `words` words issued one a cycle. */
static void count_fetched(const wia_sim_t *sim, wia_fetch_t *fetch, wia_sim_counters_t *counters, uint64_t words)
{
    uint64_t bytes = fetch->code_bytes - fetch->position, asked = words * sim->target.fetch_bytes_per_cycle;

    bytes = bytes < asked ? bytes : asked;
    fetch->position += (size_t)bytes;
    counters->bytes[WIA_SIM_BYTES_FETCHED] += bytes;
    counters->busy[WIA_SIM_FETCH] += words;
}

/* Issue words until `bytes` more bytes have come: each a cycle after the one before, and not before its FIFO slot is
 * free. A consumer that waits since `begin` takes them as they come, which frees the slots of whole words. */
static void issue_words(wia_sim_t *sim, wia_sim_counters_t *counters, uint64_t bytes, int64_t begin)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    int64_t *slots = wia_fetch_slots(sim), issue = fetch->next_issue, available = 0;
    uint32_t width = sim->target.fetch_bytes_per_cycle, slot = fetch->slot, count = fetch->slots;
    uint64_t words = fetch->words, waited = 0u;
    int64_t latency = (int64_t)sim->target.fetch_latency_cycles + 1;

    for (;; bytes -= width) {
        if (words++ >= count && slots[slot] > issue) {
            waited += (uint64_t)(slots[slot] - issue);
            issue = slots[slot];
        }
        available = issue++ + latency;
        if (bytes >= width)
            slots[slot] = later(begin, available);
        slot = slot + 1u == count ? 0u : slot + 1u;
        if (bytes <= width)
            break;
    }
    count_fetched(sim, fetch, counters, words - fetch->words);
    counters->stall[WIA_SIM_FETCH][WIA_SIM_FIFO] += waited;
    fetch->next_issue = issue;
    fetch->available = available;
    fetch->words = words;
    fetch->slot = slot;
    fetch->left = width - (uint32_t)bytes;
}

/* A consumer that is ready at `begin` takes the next `bytes` bytes of the path into its input register, word by
 * word as they become available, which frees their FIFO slots. Result: the cycle in which it has the last one. */
static int64_t take_bytes(wia_sim_t *sim, wia_sim_counters_t *counters, uint64_t bytes, int64_t begin)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    uint32_t step = bytes < fetch->left ? (uint32_t)bytes : fetch->left;

    counters->bytes[WIA_SIM_BYTES_CONSUMED] += bytes;
    if (step != 0u) {
        fetch->left -= step;
        bytes -= step;
        if (fetch->left == 0u)
            wia_fetch_slots(sim)[fetch->slot == 0u ? fetch->slots - 1u : fetch->slot - 1u] =
                later(begin, fetch->available);
    }
    if (bytes != 0u)
        issue_words(sim, counters, bytes, begin);
    return later(begin, fetch->available);
}

/* Words that the fetch unit asks for beyond the consumed ones, up to cycle `until`: they are dropped. */
static void run_ahead(wia_sim_t *sim, wia_sim_counters_t *counters, int64_t until)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    const int64_t *slots = wia_fetch_slots(sim);
    uint32_t held = fetch->left != 0u ? 1u : 0u; /* slots of words that nobody has consumed */

    while (fetch->next_issue <= until && fetch->position < fetch->code_bytes && held < fetch->slots) {
        if (fetch->words >= fetch->slots) {
            if (slots[fetch->slot] > until)
                break;
            stall(counters, WIA_SIM_FETCH, WIA_SIM_FIFO, &fetch->next_issue, slots[fetch->slot]);
        }
        count_fetched(sim, fetch, counters, 1u);
        fetch->next_issue++;
        fetch->words++;
        fetch->slot = fetch->slot + 1u == fetch->slots ? 0u : fetch->slot + 1u;
        held++;
    }
    stall(counters, WIA_SIM_FETCH, fetch->position < fetch->code_bytes ? WIA_SIM_FIFO : WIA_SIM_IDLE,
          &fetch->next_issue, until + 1);
}

/* The dispatcher jumps in cycle `at`: fetch starts anew in the next one, with an empty FIFO. */
static void restart_fetch(wia_sim_t *sim, wia_sim_counters_t *counters, int64_t at)
{
    wia_fetch_t *fetch = &sim->timing.fetch;

    run_ahead(sim, counters, at);
    fetch->position = sim->core.pc;
    fetch->left = 0u;
    fetch->slot = 0u;
    fetch->words = 0u;
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

    for (to = 0; to < WIA_UNIT_COUNT; to++)
        if (((uint32_t)signal >> to & 1u) != 0u) {
            wia_tokens_t *tokens = &timing->tokens[from][to];

            tokens->at[tokens->tail++] = at;
        }
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

    stall(counters, event->unit, WIA_SIM_IDLE, &at, unit->dispatched + 1);
    for (from = 0; from < WIA_UNIT_COUNT; from++)
        if (((uint32_t)event->wait >> from & 1u) != 0u)
            stall(counters, event->unit, WIA_SIM_WAIT_DMA_IN + from, &at, take_token(timing, from, event->unit));
    if ((event->flags & WIA_SIM_FLAG_ORDERED) != 0)
        stall(counters, event->unit, WIA_SIM_ORDER, &at, unit->visible);
    stall(counters, event->unit, ready_reason, &at, ready);
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
static void record_start(wia_sim_t *sim, wia_unit_t *unit, int64_t start)
{
    unit->starts[(unit->count - 1u) % sim->target.fetch_queue_depth] = start;
}

/* ---- dispatcher and payload streams ---- */

/* Header bytes, then room in the queue; one cycle. */
static void dispatch(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    int64_t at = timing->dispatcher_free;

    stall(counters, WIA_SIM_DISPATCH, WIA_SIM_STARVED, &at, take_bytes(sim, counters, event->header_bytes, at));
    if (event->unit < WIA_UNIT_COUNT) {
        wia_unit_t *unit = &timing->unit[event->unit];

        if (unit->count >= sim->target.fetch_queue_depth)
            stall(counters, WIA_SIM_DISPATCH, WIA_SIM_QUEUE, &at,
                  unit->starts[unit->count % sim->target.fetch_queue_depth]);
        unit->dispatched = at;
        unit->count++;
    }
    event->dispatch = at;
    timing->dispatcher_free = at + 1;
    counters->busy[WIA_SIM_DISPATCH]++;
}

/* One cycle of a payload stream, as soon as `bytes` bytes are there. `decoder`: the weight decoder works too. */
static void stream(wia_sim_t *sim, wia_sim_counters_t *counters, uint64_t bytes, int decoder)
{
    wia_timing_t *timing = &sim->timing;
    int64_t taken = take_bytes(sim, counters, bytes, timing->dispatcher_free);

    if (decoder) {
        stall(counters, WIA_SIM_DECODER, WIA_SIM_STARVED, &timing->decoder_end, taken);
        timing->decoder_end++;
        counters->busy[WIA_SIM_DECODER]++;
    }
    stall(counters, WIA_SIM_DISPATCH, WIA_SIM_STARVED, &timing->dispatcher_free, taken);
    timing->dispatcher_free++;
    counters->busy[WIA_SIM_DISPATCH]++;
}

/* The decoder turns to an instruction: raw begins with the mask, lanes with the first tile. */
static void begin_weights(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;

    stall(counters, WIA_SIM_DECODER, WIA_SIM_IDLE, &timing->decoder_end, timing->dispatcher_free);
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

/* Codec lanes: one cycle for every step of a tile, more for one that asks for more words than enter in a cycle. */
static void stream_steps(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    uint32_t step, most = sim->target.decoder_lane_bytes_per_cycle / 2u;

    event->decode_start = timing->dispatcher_free;
    for (step = 0; step < event->steps; step++) {
        uint32_t words = event->words[step];

        for (; words > most; words -= most)
            stream(sim, counters, word_bytes(timing, most), 1);
        words = word_bytes(timing, words);
        if (step + 1u == event->steps && (event->flags & WIA_SIM_FLAG_LAST) != 0) {
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

    stall(counters, WIA_SIM_DECODER, WIA_SIM_SHADOW, &timing->decoder_end, timing->shadow_free);
    stall(counters, WIA_SIM_DISPATCH, WIA_SIM_SHADOW, &timing->dispatcher_free, timing->shadow_free);
    if ((event->flags & WIA_SIM_FLAG_LANES) != 0) {
        stream_steps(sim, counters, event);
        return;
    }
    event->decode_start = timing->dispatcher_free;
    for (; rows > group; rows -= group, left -= group * event->row_bytes)
        stream(sim, counters, group * event->row_bytes, 1);
    stream(sim, counters, left, 1); /* padding goes with the last rows */
    event->decode_end = timing->dispatcher_free;
}

/* wtab: the table is built as its bytes come, one a cycle. */
static void stream_table(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event)
{
    uint32_t byte;

    for (byte = 0; byte < event->payload_bytes; byte++)
        stream(sim, counters, 1u, 0);
    event->end = event->visible = sim->timing.dispatcher_free;
}

static void stream_parameters(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_sim_event_t *event)
{
    wia_timing_t *timing = &sim->timing;
    uint32_t left = event->payload_bytes, step = sim->target.post_parameter_bytes_per_cycle;

    stall(counters, WIA_SIM_DISPATCH, WIA_SIM_PARAMETERS, &timing->dispatcher_free, timing->set_free);
    for (; left > step; left -= step)
        stream(sim, counters, step, 0);
    stream(sim, counters, left, 0);
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
        restart_fetch(sim, counters, event->dispatch);
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
        record_start(sim, &timing->unit[event->unit], event->start);
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
        record_start(sim, &timing->unit[event->unit], event->start);
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
        stall(counters, WIA_SIM_DISPATCH, WIA_SIM_DRAIN, &at, timing->unit[unit].visible);
    event->start = at;
    event->end = event->visible = at + 1;
    for (unit = 0; unit < WIA_UNIT_COUNT; unit++)
        stall(counters, unit, WIA_SIM_IDLE, &timing->unit[unit].end, event->end);
    stall(counters, WIA_SIM_DECODER, WIA_SIM_IDLE, &timing->decoder_end, event->end);
    run_ahead(sim, counters, event->dispatch);
    stall(counters, WIA_SIM_FETCH, WIA_SIM_IDLE, &timing->fetch.next_issue, event->end);
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
