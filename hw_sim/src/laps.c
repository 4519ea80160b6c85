/* laps.c: iterations of a loop that repeat in time, counted without stepping through them.
 *
 * When something happens depends on the executed instructions and on the clocks before, of which only differences
 * matter. A jump leaves the fetch unit empty. So if all clocks have moved by the same number of cycles from one jump of
 * a loop to the next, they will move so again, and every counter by what it grew. Clocks of units that the loop does not
 * use stand still. The core still executes each iteration, since addresses and results differ. */
#include "laps.h"

#include <string.h>

#include "machine.h"

/* Clocks of the machine in a fixed order, in groups. */
typedef struct {
    int64_t *clock[WIA_LAP_CLOCKS];
    uint32_t clocks;
    uint32_t end[WIA_LAP_GROUPS];
    uint64_t mark[WIA_LAP_GROUPS];
    uint32_t groups;
    bool fits;
} view_t;

static void add_clock(view_t *view, int64_t *clock)
{
    view->clock[view->clocks++] = clock;
}

static void end_group(view_t *view, uint64_t mark)
{
    view->mark[view->groups] = mark;
    view->end[view->groups++] = view->clocks;
}

/* A clock that moves whenever it is set. */
static void add_alone(view_t *view, int64_t *clock)
{
    add_clock(view, clock);
    end_group(view, (uint64_t)*clock);
}

static void add_unit(view_t *view, wia_unit_t *unit, uint32_t depth)
{
    uint32_t i, at = unit->count < depth ? 0u : unit->slot;

    add_clock(view, &unit->dispatched);
    add_clock(view, &unit->end);
    add_clock(view, &unit->visible);
    for (i = 0; i < unit->count; i++) {
        add_clock(view, &unit->starts[at]);
        at = at + 1u == depth ? 0u : at + 1u;
    }
    end_group(view, unit->all);
}

static void add_tokens(view_t *view, wia_tokens_t *tokens)
{
    uint8_t at = tokens->head;

    if ((uint8_t)(tokens->tail - tokens->head) > WIA_LAP_TOKENS) {
        view->fits = false;
        return;
    }
    for (; at != tokens->tail; at++)
        add_clock(view, &tokens->at[at]);
    end_group(view, (uint64_t)tokens->head << 8 | tokens->tail);
}

static void look(wia_sim_t *sim, view_t *view)
{
    wia_timing_t *timing = &sim->timing;
    unsigned unit, other;

    view->clocks = view->groups = 0u;
    view->fits = true;
    add_alone(view, &timing->dispatcher_free);
    add_alone(view, &timing->fetch.next_issue);
    add_alone(view, &timing->run_end);
    add_alone(view, &timing->decoder_end);
    add_alone(view, &timing->shadow_free);
    add_alone(view, &timing->pass_given);
    add_alone(view, &timing->set_free);
    add_alone(view, &timing->set_ready);
    for (unit = 0; unit < WIA_UNIT_COUNT; unit++)
        add_unit(view, &timing->unit[unit], sim->target.fetch_queue_depth);
    for (unit = 0; unit < WIA_UNIT_COUNT; unit++)
        for (other = 0; other < WIA_UNIT_COUNT; other++)
            add_tokens(view, &timing->tokens[unit][other]);
}

/* The layers that bytes [start, end] of the program belong to; false if there are too many. */
static bool find_layers(const wia_sim_program_t *program, wia_lap_t *lap, uint32_t start, uint32_t end)
{
    size_t low = 0u, high = program->span_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2u;

        if (program->spans[middle].end <= start)
            low = middle + 1u;
        else
            high = middle;
    }
    lap->first_layer = (uint32_t)low;
    for (lap->layers = 0u; low < program->span_count && program->spans[low].start <= end; low++)
        if (++lap->layers > WIA_LAP_LAYERS)
            return false;
    return true;
}

static wia_sim_counters_t *counters_of(wia_sim_t *sim, uint32_t number)
{
    return number < sim->lap.layers ? &sim->program.layers[sim->lap.first_layer + number] : &sim->outside;
}

static void keep(wia_sim_t *sim, const view_t *view)
{
    wia_lap_t *lap = &sim->lap;
    uint32_t i;

    lap->body = sim->core.pc;
    lap->loops = sim->core.loops;
    lap->valid = view->fits && find_layers(&sim->program, lap, sim->core.pc, sim->core.offset);
    if (!lap->valid)
        return;
    lap->clocks = view->clocks;
    lap->groups = view->groups;
    for (i = 0; i < view->clocks; i++)
        lap->clock[i] = *view->clock[i];
    memcpy(lap->mark, view->mark, view->groups * sizeof view->mark[0]);
    for (i = 0; i <= lap->layers; i++)
        lap->counters[i] = *counters_of(sim, i);
}

/* All clocks of groups that moved have moved by the same number of cycles; that number, or 0. */
static int64_t moved(const wia_lap_t *lap, const view_t *view)
{
    int64_t by = *view->clock[0] - lap->clock[0];
    uint32_t group, i = 0u;

    if (lap->clocks != view->clocks || lap->groups != view->groups || by <= 0)
        return 0;
    for (group = 0; group < view->groups; group++) {
        int64_t expected = group >= 3u && lap->mark[group] == view->mark[group] ? 0 : by; /* the first three all move */

        for (; i < view->end[group]; i++)
            if (*view->clock[i] - lap->clock[i] != expected)
                return 0;
    }
    return by;
}

/* Counters are nothing but uint64_t. */
static void add_growth(wia_sim_counters_t *now, const wia_sim_counters_t *before, uint64_t times)
{
    uint64_t *value = (uint64_t *)(void *)now;
    const uint64_t *old = (const uint64_t *)(const void *)before;
    size_t i;

    for (i = 0; i < sizeof *now / sizeof *value; i++)
        value[i] += times * (value[i] - old[i]);
}

void wia_lap(wia_sim_t *sim, uint32_t remaining)
{
    wia_lap_t *lap = &sim->lap;
    view_t view;
    uint32_t i;
    int64_t by;

    if (sim->trace != NULL || sim->observer != NULL || sim->plain)
        return;
    look(sim, &view);
    by = lap->valid && view.fits && lap->body == sim->core.pc && lap->loops == sim->core.loops ? moved(lap, &view) : 0;
    if (by == 0 || remaining == 0u) {
        keep(sim, &view);
        return;
    }
    for (i = 0; i < view.clocks; i++)
        if (*view.clock[i] != lap->clock[i])
            *view.clock[i] += by * (int64_t)remaining;
    sim->timing.fetch.available += by * (int64_t)remaining;
    for (i = 0; i <= lap->layers; i++)
        add_growth(counters_of(sim, i), &lap->counters[i], remaining);
    lap->valid = false;
    lap->skip = remaining;
}
