/* verify.c: execute the control flow of a program, loops and registers included, and check every instruction
 * where it would be dispatched. A program that passes cannot leave its memories, its buffers or its loops.
 *
 * Not checked, because they cannot harm more than the program's own results: races between units, operands that
 * overlap a result, accumulators and outputs that are never written, whether the bits of codec lanes are all of use
 * (the decoder counts payload_bytes and never takes more). They are the compiler's proof obligation. */
#include "verify.h"

#define WIA_DEFAULT_STEPS (UINT64_C(1) << 26)

/* The instruction at v->at is legal and lies inside the program with its payload; sets v->next. */
static int check_encoding(wia_verifier_t *v)
{
    const uint8_t *bytes = v->code + v->at;
    uint32_t left = v->code_bytes - v->at;
    const wia_info_t *info;
    uint32_t head;

    if (left < 4u)
        return wia_fail(v->wia, WIA_E_PROGRAM_END, v->at, left, 4u);
    info = wia_info_of(bytes[0]);
    if (info == NULL)
        return wia_refuse(v, WIA_E_OPCODE);
    head = wia_head_bytes(bytes);
    if (head > left)
        return wia_fail(v->wia, WIA_E_PROGRAM_END, v->at, left, head);
    if (!wia_encoding_ok(bytes))
        return wia_refuse(v, WIA_E_OPCODE);
    left -= head;
    if (wia_payload_bytes(bytes) > left)
        return wia_fail(v->wia, WIA_E_PROGRAM_END, v->at, left, wia_payload_bytes(bytes));
    v->next = v->at + head + wia_payload_bytes(bytes);
    return WIA_OK;
}

/* Take and give in program order, where every give stands before its take. A counter holds 255, and the giver may
 * be ahead of the taker by a full queue and the instruction at work. */
static int check_tokens(wia_verifier_t *v, unsigned unit, const uint8_t *bytes)
{
    uint32_t limit = 255u - v->wia->target.fetch_queue_depth - 1u;
    wia_sync_in_t mask; /* instructions with tokens have them at the same place */
    unsigned other;

    wia_decode_sync_in(&mask, bytes);
    for (other = 0u; other < WIA_UNIT_COUNT; other++)
        if ((mask.wait >> other & 1u) != 0u) {
            if (v->tokens[other][unit] == 0u)
                return wia_refuse(v, WIA_E_TOKEN);
            v->tokens[other][unit]--;
        }
    for (other = 0u; other < WIA_UNIT_COUNT; other++)
        if ((mask.signal >> other & 1u) != 0u) {
            if (v->tokens[unit][other] >= limit)
                return wia_refuse(v, WIA_E_TOKEN);
            v->tokens[unit][other]++;
        }
    return WIA_OK;
}

static int check_loop(wia_verifier_t *v, const uint8_t *bytes)
{
    wia_loop_t loop;

    if (v->depth >= v->wia->target.fetch_loop_depth || v->depth >= WIA_LOOPS)
        return wia_refuse(v, WIA_E_LOOP);
    wia_decode_loop(&loop, bytes);
    v->loops[v->depth].body = v->next;
    v->loops[v->depth].remaining = loop.count - 1u;
    v->depth++;
    v->stretch = false;
    return WIA_OK;
}

static int check_endl(wia_verifier_t *v)
{
    wia_loop_state_t *loop;

    if (v->depth == 0u)
        return wia_refuse(v, WIA_E_LOOP);
    loop = &v->loops[v->depth - 1u];
    if (loop->body == v->at) /* empty body */
        return wia_refuse(v, WIA_E_LOOP);
    v->stretch = false;
    if (loop->remaining == 0u) {
        v->depth--;
    } else {
        loop->remaining--;
        v->next = loop->body;
    }
    return WIA_OK;
}

static int check_setr(wia_verifier_t *v, const uint8_t *bytes)
{
    wia_setr_t setr;

    wia_decode_setr(&setr, bytes);
    if (setr.reg == 0u || setr.reg >= v->wia->target.fetch_address_registers)
        return wia_refuse(v, WIA_E_OPCODE);
    v->registers[setr.reg] = setr.value;
    v->register_set |= 1u << setr.reg;
    return WIA_OK;
}

static int check_addr(wia_verifier_t *v, const uint8_t *bytes)
{
    wia_addr_t addr;
    uint64_t sum;

    wia_decode_addr(&addr, bytes);
    if (addr.reg == 0u || (v->register_set >> addr.reg & 1u) == 0u)
        return wia_refuse(v, WIA_E_OPCODE);
    sum = (uint64_t)v->registers[addr.reg] + addr.increment;
    v->registers[addr.reg] = sum < addr.limit ? (uint32_t)sum : addr.limit;
    return WIA_OK;
}

static int check_flip(wia_verifier_t *v, const uint8_t *bytes)
{
    wia_flip_t flip;

    wia_decode_flip(&flip, bytes);
    if (flip.reg == 0u || (v->register_set >> flip.reg & 1u) == 0u || v->registers[flip.reg] > flip.value)
        return wia_refuse(v, WIA_E_OPCODE);
    v->registers[flip.reg] = flip.value - v->registers[flip.reg];
    return WIA_OK;
}

/* A complete prefix code, and a fresh one where no stretch is open. */
static int check_table(wia_verifier_t *v, const uint8_t *bytes)
{
    uint32_t codes = 0u; /* of the 2^11 windows of 11 bits, those that begin with a code word */
    unsigned i;
    wia_wtab_t x;

    wia_decode_wtab(&x, bytes);
    for (i = 0u; i < 2u * wia_payload_bytes(bytes); i++) {
        uint32_t length = (uint32_t)wia_payload(bytes)[i / 2u] >> i % 2u * 4u & 15u;

        if (length > 11u)
            return wia_refuse(v, WIA_E_OPCODE);
        codes += length != 0u ? 1u << (11u - length) : 0u;
    }
    if (codes != 1u << 11 || (x.fresh == 0u && !v->stretch))
        return wia_refuse(v, WIA_E_OPCODE);
    v->stretch = true;
    return WIA_OK;
}

static int check_halt(wia_verifier_t *v)
{
    unsigned from;
    unsigned to;

    if (v->depth != 0u)
        return wia_refuse(v, WIA_E_LOOP);
    if (v->next != v->code_bytes)
        return wia_fail(v->wia, WIA_E_PROGRAM_END, v->at, v->next, v->code_bytes);
    for (from = 0u; from < WIA_UNIT_COUNT; from++)
        for (to = 0u; to < WIA_UNIT_COUNT; to++)
            if (v->tokens[from][to] != 0u)
                return wia_refuse(v, WIA_E_TOKEN);
    return WIA_OK;
}

static int check_instruction(wia_verifier_t *v)
{
    const uint8_t *bytes = v->code + v->at;
    const wia_info_t *info = wia_info_of(bytes[0]);

    switch (bytes[0]) {
    case WIA_OP_HALT:
        return check_halt(v);
    case WIA_OP_LOOP:
        return check_loop(v, bytes);
    case WIA_OP_ENDL:
        return check_endl(v);
    case WIA_OP_SETR:
        return check_setr(v, bytes);
    case WIA_OP_ADDR:
        return check_addr(v, bytes);
    case WIA_OP_FLIP:
        return check_flip(v, bytes);
    case WIA_OP_WTAB:
        return check_table(v, bytes);
    default:
        break;
    }
    if (info->tokens) {
        int code = check_tokens(v, info->unit, bytes);

        if (code != WIA_OK)
            return code;
    }
    return wia_verify_work(v, bytes);
}

int wia_verify(wia_t *wia)
{
    wia_verifier_t v = {0};
    bool halted = false;
    int code;

    v.wia = wia;
    v.code = wia->image_ + wia->offset_[WIA_SECTION_PROGRAM];
    v.code_bytes = wia->bytes_[WIA_SECTION_PROGRAM];
    v.steps = wia->config_.max_steps != 0u ? wia->config_.max_steps : WIA_DEFAULT_STEPS;
    v.register_set = 1u; /* register 0 reads as 0 */
    do {
        v.at = v.next;
        code = check_encoding(&v);
        if (code == WIA_OK) {
            halted = v.code[v.at] == WIA_OP_HALT;
            code = wia_spend(&v, 1u);
        }
        if (code == WIA_OK)
            code = check_instruction(&v);
    } while (code == WIA_OK && !halted);
    return code;
}
