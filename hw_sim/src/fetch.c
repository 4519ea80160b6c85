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
    /* When the slots become free is known, as word i is consumed in cycle i or before (B(i + 1) >= before + i * width),
     * or else does not matter: they are free before a word could follow. */
    if ((end != on_time || items->slack < (before != 0u ? (int32_t)before - (int32_t)width : 0)) &&
        end > issues.first + (int64_t)fetch->slots)
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

/* ---- trains of tiles ---- */

/* `words` words, of which the first one is issued at `issue` and is `ahead` words ahead, are there when their tiles
 * begin. A tile has at most most_bytes bytes and takes no fewer cycles than it has words, so only the words that the
 * tile of the first one needs may be late. */
static bool in_time(const wia_sim_t *sim, const wia_fetch_train_t *train, uint32_t ahead, uint64_t words, int64_t issue)
{
    uint32_t width = sim->target.fetch_bytes_per_cycle, offset = sim->timing.fetch.left + ahead * width;
    uint32_t tile = offset / train->most_bytes, rest = train->most_bytes - offset % train->most_bytes;

    if (available(sim, issue + (int64_t)words - 1) <= train->begin)
        return true;
    return available(sim, issue + (int64_t)least(words, (rest + width - 1u) / width) - 1) <=
           train->begin + (int64_t)(tile * train->period);
}

/* Every word into a slot that is free already is there when its tile begins, and issued when the first one does. */
static bool filled_in_time(wia_sim_t *sim, const wia_fetch_train_t *train)
{
    const wia_fetch_t *fetch = &sim->timing.fetch;
    const wia_freed_t *freed = wia_freed(sim);
    int64_t next = fetch->next_issue;
    uint32_t ahead = fetch->empty, run;

    if (ahead != 0u && !in_time(sim, train, 0u, ahead, next))
        return false;
    next += ahead;
    for (run = 0; run < fetch->runs; run++) {
        const wia_freed_t *from = &freed[ring(fetch, fetch->head + run)];

        next = later(next, from->at);
        if (next > train->begin || !in_time(sim, train, ahead, from->words, next))
            return false;
        next += (int64_t)from->words;
        ahead += (uint32_t)from->words;
    }
    return next <= train->begin;
}

/* A tile frees a slot with word i at most late_cycles after cycle i of its decoding, and the word that comes into it is
 * issued at once. Of that, the first byte is slots - 1 words and a byte behind the last byte of word i, which is byte
 * i * width of the tile at the earliest: so many tiles later it is needed. As long as tiles take no fewer cycles than
 * the fetch needs for them, only the first words of a tile, which are needed first, may be late. */
bool wia_fetch_keeps_up(const wia_sim_t *sim, const wia_fetch_train_t *train)
{
    uint32_t width = sim->target.fetch_bytes_per_cycle, most = train->most_bytes;
    uint64_t apart = (uint64_t)(sim->timing.fetch.slots - 1u) * width + 1u, words = wia_ceil_div(most, width);
    uint64_t behind, tiles, same;

    if (most > apart || words + train->late_cycles > train->period)
        return false;
    behind = apart - most + 1u;           /* bytes behind the tile that begins with the byte */
    tiles = wia_ceil_div(behind, most);
    same = least(words - 1u, (tiles * most - behind) / width); /* the last word that is needed by the same tile */
    return same + 1u + train->late_cycles + sim->target.fetch_latency_cycles <= tiles * train->period;
}

static uint32_t bytes_until(const wia_fetch_train_t *train, uint32_t tiles)
{
    return train->each_bytes != 0u ? tiles * train->each_bytes : train->bytes_until(train->context, tiles);
}

/* Words that are wholly consumed with the first `tiles` tiles. */
static uint32_t words_until(const wia_sim_t *sim, const wia_fetch_train_t *train, uint32_t tiles)
{
    uint32_t width = sim->target.fetch_bytes_per_cycle, left = sim->timing.fetch.left;

    return ((left != 0u ? width - left : 0u) + bytes_until(train, tiles)) / width;
}

/* Tiles up to the last one after which there are words enough for all slots. */
static uint32_t without_last(const wia_sim_t *sim, const wia_fetch_train_t *train)
{
    uint32_t all = words_until(sim, train, train->tiles), tiles = train->tiles;

    while (tiles > 0u && all - words_until(sim, train, tiles) < sim->timing.fetch.slots)
        tiles--;
    return tiles;
}

/* What becomes of the slots and of next_issue when `tiles` tiles have taken each slot at least once: only the tiles
 * that freed them last matter. `keep`: slots that are free afterwards. */
static void free_again(wia_sim_t *sim, const wia_fetch_train_t *train, uint32_t tiles, uint32_t keep)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    wia_freed_t *freed = wia_freed(sim);
    uint32_t used = words_until(sim, train, tiles) - keep, from, until; /* words whose slots are taken again */
    uint32_t tile = tiles;

    do
        from = words_until(sim, train, --tile);
    while (from >= used);
    fetch->next_issue = train->begin + (int64_t)(tile * train->period + used - from);
    fetch->empty = fetch->head = fetch->runs = 0u;
    for (; tile < tiles; tile++, from = until) {
        uint32_t first = from > used ? from : used;

        until = words_until(sim, train, tile + 1u);
        if (until > first) {
            freed[fetch->runs].at = train->begin + (int64_t)(tile * train->period + first - from);
            freed[fetch->runs++].words = until - first;
        }
    }
}

/* The same for fewer tiles. */
static void free_in_turn(wia_sim_t *sim, const wia_fetch_train_t *train, uint32_t tiles)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    uint32_t width = sim->target.fetch_bytes_per_cycle, tile, issued = 0u, words, from = 0u, until;
    int64_t issue;

    for (tile = 0; tile < tiles; tile++, from = until) {
        until = words_until(sim, train, tile + 1u);
        words = (bytes_until(train, tile + 1u) - fetch->left + width - 1u) / width;
        while (issued < words)
            issued += (uint32_t)issue_some(sim, fetch, words - issued, &issue);
        if (until > from)
            free_slots(sim, fetch, train->begin + (int64_t)(tile * train->period), until - from);
    }
}

uint32_t wia_fetch_take_train(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_fetch_train_t *train)
{
    wia_fetch_t *fetch = &sim->timing.fetch;
    uint32_t width = sim->target.fetch_bytes_per_cycle, tiles = train->tiles, bytes, words, left;
    int64_t since = fetch->next_issue;

    if (!filled_in_time(sim, train))
        return 0u;
    if (train->late_cycles != 0u)
        tiles = without_last(sim, train);
    bytes = bytes_until(train, tiles);
    if (tiles == 0u || bytes_until(train, 1u) <= fetch->left)
        return 0u;
    words = (bytes - fetch->left + width - 1u) / width;
    left = words * width - (bytes - fetch->left);
    counters->bytes[WIA_SIM_BYTES_CONSUMED] += bytes;
    if (words_until(sim, train, tiles) > fetch->slots)
        free_again(sim, train, tiles, fetch->slots - (left != 0u ? 1u : 0u));
    else
        free_in_turn(sim, train, tiles);
    count_issued(sim, fetch, counters, words, since);
    fetch->left = left;
    fetch->available = available(sim, fetch->next_issue - 1);
    return tiles;
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
