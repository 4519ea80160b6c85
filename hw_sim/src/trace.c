/* trace.c: one line per event, `key value` pairs in a fixed order, so that grep and a parser both find their way. */
#include "trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

enum { LINE_BYTES = 320 };

void wia_trace_reset(wia_sim_t *sim)
{
    sim->trace_used = 0;
    sim->trace_lost = 0;
    if (sim->trace != NULL)
        sim->trace[0] = '\0';
}

static const char *unit_name(uint8_t unit)
{
    static const char *const names[] = {"dma_in", "array", "post", "dma_out", "dispatch"};

    return names[unit < WIA_UNIT_COUNT ? unit : WIA_UNIT_COUNT];
}

static int format(char *line, const wia_sim_event_t *event)
{
    int used = snprintf(line, LINE_BYTES,
                        "at %08" PRIx32 " unit %s op %s dispatch %" PRId64 " start %" PRId64 " end %" PRId64
                        " visible %" PRId64 " read %" PRIu64 " write %" PRIu64,
                        event->offset, unit_name(event->unit), wia_info_of(event->opcode)->mnemonic, event->dispatch,
                        event->start, event->end, event->visible, event->read_bytes, event->write_bytes);

    if (event->kind == WIA_SIM_EVENT_PASS && used > 0 && used < LINE_BYTES)
        used += snprintf(line + used, (size_t)(LINE_BYTES - used),
                         " rows %" PRIu32 " decode_start %" PRId64 " decode_end %" PRId64 " macs %" PRIu64, event->rows,
                         event->decode_start, event->decode_end, event->macs);
    else if (event->kind == WIA_SIM_EVENT_EMPTY && used > 0 && used < LINE_BYTES)
        used += snprintf(line + used, (size_t)(LINE_BYTES - used), " empty decode_start %" PRId64 " decode_end %" PRId64,
                         event->decode_start, event->decode_end);
    return used;
}

void wia_trace_event(wia_sim_t *sim, const wia_sim_event_t *event)
{
    char line[LINE_BYTES];
    int length = format(line, event);
    size_t bytes = length > 0 ? (size_t)length : 0u;

    bytes = bytes < sizeof line - 1u ? bytes : sizeof line - 1u;
    if (sim->trace_lost != 0u || sim->trace_used + bytes + 2u > sim->trace_room) {
        sim->trace_lost++;
        return;
    }
    memcpy(sim->trace + sim->trace_used, line, bytes);
    sim->trace_used += bytes;
    sim->trace[sim->trace_used++] = '\n';
    sim->trace[sim->trace_used] = '\0';
}
