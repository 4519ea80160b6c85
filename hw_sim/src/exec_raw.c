/* exec_raw.c: codec raw: a mask of the tiles that are not all zero, then their bytes. */
#include "exec_mac.h"

static bool stored(const wia_work_t *work, uint64_t tile)
{
    return ((uint32_t)work->payload[tile / 8u] >> (tile % 8u) & 1u) != 0u;
}

/* All tiles are; looks at a byte of the mask at a time. */
static bool all_stored(const wia_work_t *work)
{
    uint64_t byte, bytes = work->tiles / 8u;
    uint32_t rest = work->tiles % 8u;

    for (byte = 0; byte < bytes; byte++)
        if (work->payload[byte] != 0xffu)
            return false;
    return rest == 0u || (~(uint32_t)work->payload[bytes] & 0xffu >> (8u - rest)) == 0u;
}

/* Weights that are stored. */
static uint64_t count_stored(const wia_sim_t *sim, wia_work_t *work)
{
    uint64_t tile, bytes = 0u, tile_bytes = (uint64_t)sim->target.array_rows * work->fields.columns;
    uint64_t last_bytes = (uint64_t)wia_tile_rows(sim, work, work->slices - 1u) * work->fields.columns;

    if (all_stored(work)) {
        work->stored = work->tiles;
        return (uint64_t)work->runs * work->run_rows * work->fields.columns;
    }
    for (tile = 0; tile < work->tiles; tile++)
        if (stored(work, tile)) {
            bytes += tile % work->slices == work->slices - 1u ? last_bytes : tile_bytes;
            work->stored++;
        }
    return bytes;
}

/* The dispatch of the instruction with its mask. */
static void raise_header(wia_sim_t *sim, const wia_work_t *work)
{
    wia_sim_event_t event;
    uint64_t zero_tiles = work->tiles - work->stored;

    wia_exec_event(sim, work->bytes, 0u, &event);
    event.wait = event.signal = 0u; /* tokens belong to the first and the last pass */
    event.flags = WIA_SIM_FLAG_PASSES;
    event.payload_bytes = (uint32_t)(work->weights - work->payload);
    event.zero_tiles = (uint32_t)(zero_tiles < UINT32_MAX ? zero_tiles : UINT32_MAX);
    event.skipped_macs = work->skipped_macs;
    wia_exec_raise(sim, &event);
}

int wia_raw_begin(wia_sim_t *sim, wia_work_t *work)
{
    uint32_t columns = work->fields.columns;
    uint64_t mask_bytes = wia_ceil_div(work->tiles, 32u) * 4u, bytes, tile;

    if (mask_bytes > work->fields.payload_bytes)
        return WIA_SIM_E_PAYLOAD;
    if (wia_exec_work(sim, work->tiles / 8u) != WIA_SIM_OK) /* looking at the mask takes host time */
        return WIA_SIM_E_LIMIT;
    for (tile = work->tiles; tile < mask_bytes * 8u; tile++)
        if (stored(work, tile))
            return WIA_SIM_E_PAYLOAD;
    bytes = count_stored(sim, work);
    work->weights = work->payload + mask_bytes;
    if (mask_bytes + wia_ceil_div(bytes, 4u) * 4u != work->fields.payload_bytes ||
        !wia_padding_zero(work->weights, bytes))
        return WIA_SIM_E_PAYLOAD;
    work->skipped_macs = ((uint64_t)work->runs * work->run_rows * columns - bytes) * work->positions;
    work->padding_bytes = (uint32_t)(wia_ceil_div(bytes, 4u) * 4u - bytes);
    raise_header(sim, work);
    return WIA_SIM_OK;
}

void wia_raw_tile(wia_work_t *work, wia_tile_t *tile)
{
    if (!stored(work, work->tile))
        return;
    tile->weights = (const int8_t *)work->weights;
    work->weights += tile->rows * work->fields.columns;
    work->stored--;
    tile->last = work->stored == 0u;
}
