/* crc32.c: CRC-32 of IEEE 802.3, four bits a step: a table of 64 bytes instead of 1 KiB. */
#include "wia_internal.h"

uint32_t wia_crc32(uint32_t crc, const uint8_t *bytes, size_t count)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    size_t i;

    crc = ~crc;
    for (i = 0u; i < count; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}
