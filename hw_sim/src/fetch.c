/* fetch.c: the program fetch of the scoreboard. Formulas: docs/ISA.md, "Fetch". */
#include "fetch.h"

#include "machine.h"

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void wia_fetch_reset(wia_sim_t *sim)
{
    wia_fetch_t *fetch = &sim->timing.fetch;

    fetch->code_bytes = sim->program.code_bytes;
    fetch->slots = sim->target.fetch_fifo_bytes / sim->target.fetch_bytes_per_cycle;
    fetch->empty = fetch->slots;
}

static uint32_t ring(const wia_fetch_t *fetch, uint32_t index)
{
    return index >= fetch->slots ? index - fetch->slots : index;
}

/* `words` slots become free: the first one at `at`, each other one a cycle later at the latest. */
static void free_slots(wia_sim_t *sim, wia_fetch_t *fetch, int64_t at, uint64_t words)
{
    wia_freed_t *freed = wia_freed(sim), *last;

    if (fetch->runs != 0u) {
        last = &freed[ring(fetch, fetch->head + fetch->runs - 1u)];
        if (at <= last->at + (int64_t)last->words) {
            last->words += words;
            return;
        }
    }
    last = &freed[ring(fetch, fetch->head + fetch->runs)];
    last->at = at;
    last->words = words;
    fetch->runs++;
}

/* Issue up to `most` words that follow one another without a gap, into slots that are free; their number. The first one
 * is issued in cycle *issue. There must be a free slot. */
static uint64_t issue_some(wia_sim_t *sim, wia_fetch_t *fetch, uint64_t most, int64_t *issue)
{
    wia_freed_t *freed = &wia_freed(sim)[fetch->head];
    uint64_t words;

    *issue = fetch->next_issue;
    if (fetch->empty != 0u) {
        words = least(most, fetch->empty);
        fetch->empty -= (uint32_t)words;
    } else {
        words = least(most, freed->words);
        *issue = later(*issue, freed->at);
        freed->at += (int64_t)words;
        freed->words -= words;
        if (freed->words == 0u) {
            fetch->head = ring(fetch, fetch->head + 1u);
            fetch->runs--;
        }
    }
    fetch->next_issue = *issue + (int64_t)words;
    return words;
}

/* Count `words` words that were issued since `since`, the earliest issue of the first one. */
static void count_issued(const wia_sim_t *sim, wia_fetch_t *fetch, wia_sim_counters_t *counters, uint64_t words,
                         int64_t since)
{
    uint64_t bytes = least(fetch->code_bytes - fetch->position, words * sim->target.fetch_bytes_per_cycle);

    fetch->position += (size_t)bytes;
    counters->bytes[WIA_SIM_BYTES_FETCHED] += bytes;
    counters->busy[WIA_SIM_FETCH] += words;
    counters->stall[WIA_SIM_FETCH][WIA_SIM_FIFO] += (uint64_t)(fetch->next_issue - since) - words;
}

static int64_t available(const wia_sim_t *sim, int64_t issue)
{
    return issue + (int64_t)sim->target.fetch_latency_cycles + 1;
}

/* Issue the words of the next `bytes` bytes and free those that a consumer, which waits since `begin`, takes wholly. */
static void issue_words(wia_sim_t *sim, wia_sim_counters_t *counters, uint64_t bytes, int64_t begin)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    uint32_t width = sim->target.fetch_bytes_per_cycle;
    uint64_t words = wia_ceil_div(bytes, width), whole = bytes / width, left;
    int64_t since = fetch->next_issue, issue;

    for (left = words; left != 0u;) {
        uint64_t some = issue_some(sim, fetch, left, &issue), taken = least(some, whole);

        if (taken != 0u)
            free_slots(sim, fetch, later(begin, available(sim, issue)), taken);
        whole -= taken;
        left -= some;
    }
    count_issued(sim, fetch, counters, words, since);
    fetch->available = available(sim, fetch->next_issue - 1);
    fetch->left = (uint32_t)(words * width - bytes);
}

int64_t wia_fetch_take(wia_sim_t *sim, wia_sim_counters_t *counters, uint64_t bytes, int64_t begin)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    uint32_t step = (uint32_t)least(bytes, fetch->left);

    counters->bytes[WIA_SIM_BYTES_CONSUMED] += bytes;
    if (step != 0u) {
        fetch->left -= step;
        bytes -= step;
        if (fetch->left == 0u)
            free_slots(sim, fetch, later(begin, fetch->available), 1u);
    }
    if (bytes != 0u)
        issue_words(sim, counters, bytes, begin);
    return later(begin, fetch->available);
}

/* When the next `words` words are issued: the first and the last one, and if there is a gap between them. */
typedef struct {
    int64_t first, last;
    bool gap;
} issues_t;

/* False unless the slots for all of them are free already. */
static bool foresee(wia_sim_t *sim, const wia_fetch_t *fetch, uint32_t words, issues_t *out)
{
    const wia_freed_t *freed = wia_freed(sim);
    uint32_t some = words < fetch->empty ? words : fetch->empty, run;
    const uint32_t all = words;
    int64_t next = fetch->next_issue;

    if (some == 0u && fetch->runs != 0u)
        next = later(next, freed[fetch->head].at);
    out->first = next;
    next += some;
    words -= some;
    for (run = 0; words != 0u && run < fetch->runs; run++) {
        const wia_freed_t *from = &freed[ring(fetch, fetch->head + run)];

        some = (uint32_t)least(words, from->words);
        next = later(next, from->at) + some;
        words -= some;
    }
    out->last = next - 1;
    out->gap = out->last - out->first != (int64_t)all - 1;
    return words == 0u;
}

int64_t wia_fetch_take_items(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_fetch_items_t *items,
                             int64_t begin)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    uint32_t width = sim->target.fetch_bytes_per_cycle, before = fetch->left, bytes = items->bytes - before;
    uint32_t words = (bytes + width - 1u) / width, whole, left;
    int64_t since = fetch->next_issue, on_time = begin + items->count - 1, end = on_time, issue;
    issues_t issues;

    if (items->first <= before || !foresee(sim, fetch, words, &issues))
        return WIA_FETCH_UNKNOWN;
    if (available(sim, issues.last) > begin) {
        int64_t peak = (int64_t)(((uint32_t)items->peak - before + width - 1u) / width);

        if (issues.gap)
            return WIA_FETCH_UNKNOWN;
        end = later(end, available(sim, issues.first) + peak + items->count - 2);
    }
    /* When the slots become free is known, or else does not matter: they are free before a word could follow. */
    if ((end != on_time || items->slack < (int32_t)before) && end > issues.first + (int64_t)fetch->slots)
        return WIA_FETCH_UNKNOWN;
    counters->bytes[WIA_SIM_BYTES_CONSUMED] += items->bytes;
    for (left = words; left != 0u;)
        left -= (uint32_t)issue_some(sim, fetch, left, &issue);
    fetch->left = words * width - bytes;
    whole = words - (fetch->left != 0u) + (before != 0u);
    if (whole != 0u)
        free_slots(sim, fetch, begin, whole);
    count_issued(sim, fetch, counters, words, since);
    fetch->available = available(sim, issues.last);
    return end;
}

void wia_fetch_run_ahead(wia_sim_t *sim, wia_sim_counters_t *counters, int64_t until)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    uint32_t held = fetch->left != 0u ? 1u : 0u; /* slots of words that nobody has consumed */

    while (fetch->next_issue <= until && fetch->position < fetch->code_bytes && held < fetch->slots) {
        const wia_freed_t *freed = &wia_freed(sim)[fetch->head];
        uint64_t most = wia_ceil_div(fetch->code_bytes - fetch->position, sim->target.fetch_bytes_per_cycle), words;
        int64_t since = fetch->next_issue, first = since, issue;

        if (fetch->empty == 0u) {
            if (freed->at > until)
                break;
            first = later(first, freed->at);
        }
        most = least(least(most, fetch->slots - held), (uint64_t)(until - first) + 1u);
        words = issue_some(sim, fetch, most, &issue);
        count_issued(sim, fetch, counters, words, since);
        held += (uint32_t)words;
    }
    if (until >= fetch->next_issue) {
        counters->stall[WIA_SIM_FETCH][fetch->position < fetch->code_bytes ? WIA_SIM_FIFO : WIA_SIM_IDLE] +=
            (uint64_t)(until + 1 - fetch->next_issue);
        fetch->next_issue = until + 1;
    }
}

void wia_fetch_restart(wia_sim_t *sim, wia_sim_counters_t *counters, int64_t at)
{
    wia_fetch_t *fetch = &sim->timing.fetch;

    wia_fetch_run_ahead(sim, counters, at);
    fetch->position = sim->core.pc;
    fetch->left = 0u;
    fetch->empty = fetch->slots;
    fetch->head = fetch->runs = 0u;
}
