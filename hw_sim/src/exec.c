/* exec.c: dispatch loop of the functional core, control instructions, registers, tokens. */
#include "exec.h"

#include <string.h>

typedef int exec_t(wia_sim_t *sim, const uint8_t *bytes);

int wia_exec_address(const wia_sim_t *sim, uint32_t field, uint32_t reg, uint64_t *address)
{
    if (reg >= sim->target.fetch_address_registers)
        return WIA_SIM_E_FIELD;
    if ((sim->core.reg_set >> reg & 1u) == 0u)
        return WIA_SIM_E_UNSET;
    *address = (uint64_t)field + sim->core.reg[reg];
    return WIA_SIM_OK;
}

/* All zero. memset would become a string instruction, which takes longer than these. */
static void clear_event(wia_sim_event_t *event)
{
    event->flags = event->latency = 0u;
    event->payload_bytes = event->rows = event->row_bytes = event->carried_words = event->zero_tiles = 0u;
    event->steps = NULL;
    event->words = NULL;
    event->lead_cycles = event->read_bytes = event->write_bytes = event->macs = event->skipped_macs = 0u;
    event->dispatch = event->decode_start = event->decode_end = event->start = event->end = event->visible = 0;
}

void wia_exec_event(const wia_sim_t *sim, const uint8_t *bytes, uint64_t busy_cycles, wia_sim_event_t *event)
{
    const wia_info_t *info = sim->core.shape.info;

    clear_event(event);
    event->kind = WIA_SIM_EVENT_INSTRUCTION;
    event->unit = info->unit;
    event->opcode = info->opcode;
    event->offset = sim->core.offset;
    event->header_bytes = sim->core.shape.head_bytes;
    event->busy_cycles = busy_cycles;
    event->wait = event->signal = 0u;
    if (info->tokens) {
        wia_sync_in_t mask; /* all instructions with tokens have them at the same place */

        wia_decode_sync_in(&mask, bytes);
        event->wait = (uint8_t)mask.wait;
        event->signal = (uint8_t)mask.signal;
    }
}

int wia_exec_work(wia_sim_t *sim, uint64_t cycles)
{
    uint64_t left = sim->work_limit - sim->core.work;

    if (cycles >= left)
        return WIA_SIM_E_LIMIT;
    sim->core.work += cycles;
    return WIA_SIM_OK;
}

/* Take and give tokens in program order, where a give must stand before its take. */
static int count_tokens(wia_sim_t *sim, const uint8_t *bytes, unsigned unit)
{
    wia_sync_in_t mask; /* all instructions with tokens have them at the same place */
    unsigned other;

    wia_decode_sync_in(&mask, bytes);
    if ((mask.wait | mask.signal) == 0u)
        return WIA_SIM_OK;
    for (other = 0; other < WIA_UNIT_COUNT; other++)
        if ((mask.wait >> other & 1u) != 0u) {
            if (sim->core.tokens[other][unit] == 0u)
                return WIA_SIM_E_TOKEN;
            sim->core.tokens[other][unit]--;
        }
    for (other = 0; other < WIA_UNIT_COUNT; other++)
        if ((mask.signal >> other & 1u) != 0u) {
            if (sim->core.tokens[unit][other] == WIA_TOKENS - 1)
                return WIA_SIM_E_TOKEN;
            sim->core.tokens[unit][other]++;
        }
    return WIA_SIM_OK;
}

static void control(wia_sim_t *sim, const uint8_t *bytes, uint8_t kind, uint8_t flags)
{
    wia_sim_event_t event;

    wia_exec_event(sim, bytes, 1u, &event);
    event.kind = kind;
    event.flags = flags;
    wia_exec_raise(sim, &event);
}

static int exec_halt(wia_sim_t *sim, const uint8_t *bytes)
{
    unsigned from, to;

    if (sim->core.loops != 0u)
        return WIA_SIM_E_LOOP;
    for (from = 0; from < WIA_UNIT_COUNT; from++)
        for (to = 0; to < WIA_UNIT_COUNT; to++)
            if (sim->core.tokens[from][to] != 0u)
                return WIA_SIM_E_TOKEN;
    sim->core.halted = true;
    control(sim, bytes, WIA_SIM_EVENT_HALT, 0u);
    return WIA_SIM_OK;
}

static int exec_loop(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_core_t *core = &sim->core;
    wia_loop_t loop;

    if (core->loops >= sim->target.fetch_loop_depth)
        return WIA_SIM_E_LOOP;
    wia_decode_loop(&loop, bytes);
    core->loop[core->loops].body = core->pc;
    core->loop[core->loops].remaining = loop.count - 1u;
    core->loops++;
    wia_lanes_close(sim);
    control(sim, bytes, WIA_SIM_EVENT_INSTRUCTION, 0u);
    return WIA_SIM_OK;
}

static int exec_endl(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_core_t *core = &sim->core;
    wia_loop_state_t *loop;

    if (core->loops == 0u)
        return WIA_SIM_E_LOOP;
    loop = &core->loop[core->loops - 1u];
    if (loop->body == core->offset)
        return WIA_SIM_E_LOOP; /* empty body */
    wia_lanes_close(sim);
    if (loop->remaining == 0u) {
        core->loops--;
        control(sim, bytes, WIA_SIM_EVENT_INSTRUCTION, 0u);
        return WIA_SIM_OK;
    }
    loop->remaining--;
    core->pc = loop->body;
    control(sim, bytes, WIA_SIM_EVENT_INSTRUCTION, WIA_SIM_FLAG_JUMP);
    if (sim->lap.skip != 0u)
        sim->lap.skip--;
    else if (wia_timed(sim))
        wia_lap(sim, loop->remaining);
    return WIA_SIM_OK;
}

static int exec_setr(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_setr_t setr;

    wia_decode_setr(&setr, bytes);
    if (setr.reg == 0u || setr.reg >= sim->target.fetch_address_registers)
        return WIA_SIM_E_FIELD;
    sim->core.reg[setr.reg] = setr.value;
    sim->core.reg_set |= 1u << setr.reg;
    control(sim, bytes, WIA_SIM_EVENT_INSTRUCTION, 0u);
    return WIA_SIM_OK;
}

static int exec_addr(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_addr_t addr;
    uint64_t sum;
    int fault;

    wia_decode_addr(&addr, bytes);
    if (addr.reg == 0u)
        return WIA_SIM_E_FIELD;
    fault = wia_exec_address(sim, addr.increment, addr.reg, &sum);
    if (fault != WIA_SIM_OK)
        return fault;
    sim->core.reg[addr.reg] = sum < addr.limit ? (uint32_t)sum : addr.limit;
    control(sim, bytes, WIA_SIM_EVENT_INSTRUCTION, 0u);
    return WIA_SIM_OK;
}

static int exec_flip(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_flip_t flip;
    uint64_t old;
    int fault;

    wia_decode_flip(&flip, bytes);
    if (flip.reg == 0u)
        return WIA_SIM_E_FIELD;
    fault = wia_exec_address(sim, 0u, flip.reg, &old);
    if (fault != WIA_SIM_OK)
        return fault;
    if (old > flip.value)
        return WIA_SIM_E_FIELD;
    sim->core.reg[flip.reg] = flip.value - (uint32_t)old;
    control(sim, bytes, WIA_SIM_EVENT_INSTRUCTION, 0u);
    return WIA_SIM_OK;
}

/* sync_*: only tokens, in the order of its unit. */
static int exec_sync(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_sim_event_t event;

    wia_exec_event(sim, bytes, 1u, &event);
    event.flags = WIA_SIM_FLAG_ORDERED;
    wia_exec_raise(sim, &event);
    return WIA_SIM_OK;
}

static exec_t *exec_of(uint8_t opcode)
{
    switch (opcode) {
    case WIA_OP_HALT: return exec_halt;
    case WIA_OP_LOOP: return exec_loop;
    case WIA_OP_ENDL: return exec_endl;
    case WIA_OP_SETR: return exec_setr;
    case WIA_OP_ADDR: return exec_addr;
    case WIA_OP_FLIP: return exec_flip;
    case WIA_OP_WTAB: return wia_exec_wtab;
    case WIA_OP_LOAD: return wia_exec_load;
    case WIA_OP_FILL: return wia_exec_fill;
    case WIA_OP_STORE: return wia_exec_store;
    case WIA_OP_AGEO: return wia_exec_ageo;
    case WIA_OP_CONV: return wia_exec_conv;
    case WIA_OP_DWC: return wia_exec_dwc;
    case WIA_OP_PAR: return wia_exec_par;
    case WIA_OP_ADDP: return wia_exec_addp;
    case WIA_OP_LUT: return wia_exec_lut;
    case WIA_OP_PGEO: return wia_exec_pgeo;
    case WIA_OP_POST: return wia_exec_post;
    case WIA_OP_SYNC_IN:
    case WIA_OP_SYNC_OUT:
    case WIA_OP_SYNC_ARRAY:
    case WIA_OP_SYNC_POST: return exec_sync;
    default: return NULL; /* no instruction */
    }
}

int wia_exec_check(const uint8_t *code, size_t code_bytes, size_t at, wia_shape_t *shape)
{
    const uint8_t *bytes = code + at;
    size_t left = code_bytes - at;

    if (left < 4u)
        return WIA_SIM_E_END;
    shape->info = wia_info_of(bytes[0]);
    if (shape->info == NULL)
        return WIA_SIM_E_OPCODE;
    shape->head_bytes = wia_head_bytes(bytes);
    if (shape->head_bytes > left)
        return WIA_SIM_E_END;
    if (!wia_encoding_ok(bytes))
        return WIA_SIM_E_OPCODE;
    shape->payload_bytes = wia_payload_bytes(bytes);
    if (shape->payload_bytes > left - shape->head_bytes)
        return WIA_SIM_E_END;
    return WIA_SIM_OK;
}

/* Shape of the instruction at core.pc, which mostly has been seen in an earlier iteration. */
static int find_shape(wia_sim_t *sim)
{
    wia_core_t *core = &sim->core;
    wia_seen_t *seen = &core->seen[core->pc / 4u % WIA_SEEN];
    int fault = WIA_SIM_OK;

    if (seen->shape.info == NULL || seen->offset != core->pc) {
        fault = wia_exec_check(sim->program.code, sim->program.code_bytes, core->pc, &seen->shape);
        seen->offset = core->pc;
        core->shape = seen->shape;
        if (fault != WIA_SIM_OK)
            seen->shape.info = NULL;
        return fault;
    }
    core->shape = seen->shape;
    return WIA_SIM_OK;
}

static int step(wia_sim_t *sim)
{
    wia_core_t *core = &sim->core;
    const uint8_t *bytes = sim->program.code + core->pc;
    int fault;

    core->offset = core->pc;
    fault = find_shape(sim);
    if (fault != WIA_SIM_OK)
        return fault;
    core->pc += core->shape.head_bytes + core->shape.payload_bytes;
    WIA_PREFETCH(sim->program.code + core->pc); /* mostly behind a payload that counts-only does not read */
    fault = wia_exec_work(sim, 1u);
    if (fault == WIA_SIM_OK && core->shape.info->tokens)
        fault = count_tokens(sim, bytes, core->shape.info->unit);
    return fault == WIA_SIM_OK ? exec_of(bytes[0])(sim, bytes) : fault;
}

int wia_exec_run(wia_sim_t *sim)
{
    int fault = WIA_SIM_OK;

    while (fault == WIA_SIM_OK && !sim->core.halted)
        fault = step(sim);
    return fault;
}
