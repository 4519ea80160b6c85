/* wia_internal.h: what the runtime's files share. */
#ifndef WIA_INTERNAL_H
#define WIA_INTERNAL_H

#include "wia/gen/wia_isa.h"
#include "wia/gen/wia_regs.h"
#include "wia/wia.h"

enum { WIA_STATE_EMPTY = 0, WIA_STATE_LOADED = 1, WIA_STATE_RUNNING = 2 };

static inline uint32_t wia_u16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static inline uint32_t wia_u32(const uint8_t *bytes)
{
    return wia_u16(bytes) | wia_u16(bytes + 2) << 16;
}

static inline uint64_t wia_u64(const uint8_t *bytes)
{
    return (uint64_t)wia_u32(bytes) | (uint64_t)wia_u32(bytes + 4) << 32;
}

/* Smallest multiple of `unit` (at most 256) that is not below `value` (at most 2^31). */
static inline uint32_t wia_round_up(uint32_t value, uint32_t unit)
{
    return (value + unit - 1u) / unit * unit;
}

/* Bytes of record `index` of a section; the caller knows that there is one. */
static inline const uint8_t *wia_record(const wia_t *wia, unsigned section, uint32_t index, uint32_t record_bytes)
{
    return wia->image_ + wia->offset_[section] + (size_t)index * record_bytes;
}

/* Remember where an error was and return its code. */
static inline int wia_fail(wia_t *wia, int code, uint32_t where, uint32_t found, uint32_t expected)
{
    wia->fault.where = where;
    wia->fault.found = found;
    wia->fault.expected = expected;
    return code;
}

/* crc32.c: continue the checksum `crc` (0 at the start) over more bytes. */
uint32_t wia_crc32(uint32_t crc, const uint8_t *bytes, size_t count);

/* image.c: check everything but the instructions; fills summary, target, image_ and the sections. */
int wia_parse(wia_t *wia, const uint8_t *image, size_t image_bytes);

/* verify.c: execute the program's control flow and check every access; see docs/ISA.md "Rules for programs". */
int wia_verify(wia_t *wia);

#endif
