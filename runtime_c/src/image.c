/* image.c: parse an image in place. Every offset is checked before it is followed; sizes are added in 64 bits. */
#include "wia_internal.h"

/* One row of the section table as the format prescribes it. */
typedef struct {
    uint32_t kind;
    uint32_t record_bytes;
    uint32_t alignment_bytes;
} section_rule_t;

#define WIA_SECTION_RULE(kind, record_bytes, alignment_bytes) {kind, record_bytes, alignment_bytes},

static bool is_zero(const uint8_t *bytes, uint32_t count)
{
    uint32_t i;

    for (i = 0u; i < count; i++)
        if (bytes[i] != 0u)
            return false;
    return true;
}

/* Header: length, magic, versions, size, checksum, in this order, so that a newer image is called newer. */
static int parse_header(wia_t *wia, const uint8_t *image, size_t image_bytes)
{
    static const uint8_t magic[WIA_SIZE_MAGIC] = WIA_MAGIC;
    uint32_t total;
    uint32_t crc;
    unsigned i;

    if (image_bytes < WIA_SIZE_HEADER)
        return wia_fail(wia, WIA_E_TRUNCATED, 0u, (uint32_t)image_bytes, WIA_SIZE_HEADER);
    for (i = 0u; i < WIA_SIZE_MAGIC; i++)
        if (image[i] != magic[i])
            return wia_fail(wia, WIA_E_MAGIC, i, image[i], magic[i]);
    if (wia_u16(image + WIA_AT_HEADER_FORMAT_VERSION) != WIA_FORMAT_VERSION)
        return wia_fail(wia, WIA_E_VERSION, WIA_AT_HEADER_FORMAT_VERSION,
                        wia_u16(image + WIA_AT_HEADER_FORMAT_VERSION), WIA_FORMAT_VERSION);
    if (wia_u16(image + WIA_AT_HEADER_ISA_VERSION) != WIA_ISA_VERSION)
        return wia_fail(wia, WIA_E_VERSION, WIA_AT_HEADER_ISA_VERSION, wia_u16(image + WIA_AT_HEADER_ISA_VERSION),
                        WIA_ISA_VERSION);
    total = wia_u32(image + WIA_AT_HEADER_TOTAL_BYTES);
    if (total > image_bytes)
        return wia_fail(wia, WIA_E_TRUNCATED, WIA_AT_HEADER_TOTAL_BYTES, (uint32_t)image_bytes, total);
    if (total < WIA_SIZE_HEADER + WIA_SECTION_COUNT * WIA_SIZE_SECTION || total > WIA_MAX_IMAGE_BYTES)
        return wia_fail(wia, WIA_E_LAYOUT, WIA_AT_HEADER_TOTAL_BYTES, total, 0u);
    crc = wia_crc32(0u, image, WIA_AT_HEADER_CRC32);
    crc = wia_crc32(crc, image + WIA_AT_HEADER_CRC32 + 4u, total - WIA_AT_HEADER_CRC32 - 4u);
    if (wia_u32(image + WIA_AT_HEADER_CRC32) != crc)
        return wia_fail(wia, WIA_E_CRC, WIA_AT_HEADER_CRC32, wia_u32(image + WIA_AT_HEADER_CRC32), crc);
    if (wia_u32(image + WIA_AT_HEADER_HEADER_BYTES) != WIA_SIZE_HEADER)
        return wia_fail(wia, WIA_E_LAYOUT, WIA_AT_HEADER_HEADER_BYTES,
                        wia_u32(image + WIA_AT_HEADER_HEADER_BYTES), WIA_SIZE_HEADER);
    if (wia_u32(image + WIA_AT_HEADER_SECTION_COUNT) != WIA_SECTION_COUNT)
        return wia_fail(wia, WIA_E_LAYOUT, WIA_AT_HEADER_SECTION_COUNT,
                        wia_u32(image + WIA_AT_HEADER_SECTION_COUNT), WIA_SECTION_COUNT);
    if (!is_zero(image + WIA_AT_HEADER_RESERVED, WIA_SIZE_HEADER - WIA_AT_HEADER_RESERVED))
        return wia_fail(wia, WIA_E_LAYOUT, WIA_AT_HEADER_RESERVED, 0u, 0u);
    wia->image_ = image;
    wia->summary.image_bytes = total;
    return WIA_OK;
}

/* Section table: prescribed kinds in order, each at the next multiple of its alignment, zeros between. */
static int parse_sections(wia_t *wia)
{
    static const section_rule_t rules[WIA_SECTION_COUNT] = {WIA_SECTION_LIST(WIA_SECTION_RULE)};
    uint32_t end = WIA_SIZE_HEADER + WIA_SECTION_COUNT * WIA_SIZE_SECTION;
    unsigned i;

    for (i = 0u; i < WIA_SECTION_COUNT; i++) {
        uint32_t at = WIA_SIZE_HEADER + i * WIA_SIZE_SECTION;
        const uint8_t *record = wia->image_ + at;
        uint32_t offset = wia_u32(record + WIA_AT_SECTION_OFFSET);
        uint32_t bytes = wia_u32(record + WIA_AT_SECTION_BYTES);

        if (wia_u32(record + WIA_AT_SECTION_KIND) != rules[i].kind
            || wia_u32(record + WIA_AT_SECTION_RECORD_BYTES) != rules[i].record_bytes)
            return wia_fail(wia, WIA_E_LAYOUT, at, wia_u32(record + WIA_AT_SECTION_KIND), rules[i].kind);
        if (offset != wia_round_up(end, rules[i].alignment_bytes) || bytes % rules[i].record_bytes != 0u
            || (uint64_t)offset + bytes > wia->summary.image_bytes
            || !is_zero(wia->image_ + end, offset - end))
            return wia_fail(wia, WIA_E_LAYOUT, at, offset, wia_round_up(end, rules[i].alignment_bytes));
        wia->offset_[i] = offset;
        wia->bytes_[i] = bytes;
        end = offset + bytes;
    }
    if (end != wia->summary.image_bytes)
        return wia_fail(wia, WIA_E_LAYOUT, end, end, wia->summary.image_bytes);
    return WIA_OK;
}

/* The string whose offset stands at byte `at` of the image; NULL if it is outside of the string section. The
 * section ends with a zero byte (checked first), so every offset inside of it is a string. */
static const char *string_at(const wia_t *wia, const uint8_t *field)
{
    uint32_t offset = wia_u32(field);

    if (offset >= wia->bytes_[WIA_SECTION_STRINGS])
        return NULL;
    return (const char *)(wia->image_ + wia->offset_[WIA_SECTION_STRINGS] + offset);
}

static int parse_strings(wia_t *wia)
{
    uint32_t offset = wia->offset_[WIA_SECTION_STRINGS];
    uint32_t bytes = wia->bytes_[WIA_SECTION_STRINGS];

    if (bytes == 0u || bytes > WIA_MAX_STRING_BYTES || wia->image_[offset + bytes - 1u] != 0u)
        return wia_fail(wia, WIA_E_LAYOUT, offset, bytes, WIA_MAX_STRING_BYTES);
    wia->summary.name = string_at(wia, wia->image_ + WIA_AT_HEADER_NAME);
    if (wia->summary.name == NULL)
        return wia_fail(wia, WIA_E_LAYOUT, WIA_AT_HEADER_NAME, wia_u32(wia->image_ + WIA_AT_HEADER_NAME), bytes);
    return WIA_OK;
}

/* The image's target is the device's: same digest, same numbers. Without a device, it becomes wia->target. */
static int parse_target(wia_t *wia)
{
    uint32_t at = wia->offset_[WIA_SECTION_TARGET];
    const uint8_t *record = wia->image_ + at;
    wia_target_t target;
    unsigned bad;
    uint32_t i;

    if (wia->bytes_[WIA_SECTION_TARGET] != WIA_SIZE_TARGET)
        return wia_fail(wia, WIA_E_LAYOUT, at, wia->bytes_[WIA_SECTION_TARGET], WIA_SIZE_TARGET);
    wia->summary.target_name = string_at(wia, record + WIA_AT_TARGET_NAME);
    if (wia->summary.target_name == NULL)
        return wia_fail(wia, WIA_E_LAYOUT, at + WIA_AT_TARGET_NAME, wia_u32(record + WIA_AT_TARGET_NAME), 0u);
    wia_target_read(&target, record + WIA_AT_TARGET_NUMBERS);
    bad = wia_target_check(&target);
    if (bad != 0u)
        return wia_fail(wia, WIA_E_LAYOUT, at + 4u * (uint32_t)(bad - 1u), 0u, 0u);
    if (!wia->device_) {
        wia->target = target;
        return WIA_OK;
    }
    for (i = 0u; i < WIA_TARGET_FIELDS; i++) {
        uint32_t found = wia_u32(record + WIA_AT_TARGET_NUMBERS + 4u * i);
        uint32_t expected = wia->hal_.read_register(wia->hal_.ctx, WIA_REG_TARGET_NUMBER + 4u * i);

        if (found != expected)
            return wia_fail(wia, WIA_E_TARGET, i + 1u, found, expected);
    }
    for (i = 0u; i < 4u; i++) {
        uint32_t found = wia_u32(wia->image_ + WIA_AT_HEADER_TARGET_DIGEST + 4u * i);
        uint32_t expected = wia->hal_.read_register(wia->hal_.ctx, WIA_REG_TARGET_DIGEST + 4u * i);

        if (found != expected)
            return wia_fail(wia, WIA_E_TARGET, 0u, found, expected);
    }
    return WIA_OK;
}

static int parse_buffers(wia_t *wia)
{
    uint32_t count = wia->bytes_[WIA_SECTION_BUFFERS] / WIA_SIZE_BUFFER;
    uint32_t i;

    if (count > WIA_MAX_BUFFERS)
        return wia_fail(wia, WIA_E_LAYOUT, wia->offset_[WIA_SECTION_BUFFERS], count, WIA_MAX_BUFFERS);
    for (i = 0u; i < count; i++) {
        uint32_t at = wia->offset_[WIA_SECTION_BUFFERS] + i * WIA_SIZE_BUFFER;
        const uint8_t *record = wia->image_ + at;
        uint32_t kind = wia_u32(record + WIA_AT_BUFFER_KIND);
        uint32_t bytes = wia_u32(record + WIA_AT_BUFFER_BYTES);

        if (string_at(wia, record + WIA_AT_BUFFER_NAME) == NULL || kind > WIA_BUFFER_SCRATCH
            || wia_u32(record + WIA_AT_BUFFER_RESERVED) != 0u)
            return wia_fail(wia, WIA_E_LAYOUT, at, kind, WIA_BUFFER_SCRATCH);
        if (bytes == 0u || bytes > wia->target.memory_max_external_bytes)
            return wia_fail(wia, WIA_E_LAYOUT, at + WIA_AT_BUFFER_BYTES, bytes,
                            wia->target.memory_max_external_bytes);
        if (kind == WIA_BUFFER_SCRATCH)
            wia->summary.scratch_bytes += wia_round_up(bytes, wia->target.memory_alignment_bytes);
        if (kind == WIA_BUFFER_OUTPUT)
            wia->summary.staging_bytes += wia_round_up(bytes, wia->target.memory_alignment_bytes);
    }
    return WIA_OK;
}

/* perm holds each of 0 .. 3 once. */
static bool is_permutation(const uint8_t *perm)
{
    unsigned seen = 0u;
    unsigned i;

    for (i = 0u; i < 4u; i++)
        seen |= perm[i] < 4u ? 1u << perm[i] : 0u;
    return seen == 15u;
}

/* The product of `count` words is `bytes`; stops before it can overflow. */
static bool shape_is(const uint8_t *shape, uint32_t count, uint32_t bytes)
{
    uint64_t product = 1u;
    uint32_t i;

    for (i = 0u; i < count; i++) {
        product *= wia_u32(shape + 4u * i);
        if (product == 0u || product > bytes)
            return false;
    }
    return product == bytes;
}

/* A positive binary64 that is a normal float32: the host divides by it. */
static bool scale_ok(uint64_t bits)
{
    uint64_t exponent = bits >> 52;

    return exponent >= 1023u - 126u && exponent < 1023u + 127u;
}

static int parse_port(wia_t *wia, uint32_t index)
{
    uint32_t at = wia->offset_[WIA_SECTION_PORTS] + index * WIA_SIZE_PORT;
    const uint8_t *record = wia->image_ + at;
    uint32_t buffers = wia->bytes_[WIA_SECTION_BUFFERS] / WIA_SIZE_BUFFER;
    uint32_t buffer = wia_u32(record + WIA_AT_PORT_BUFFER);
    uint32_t rank = wia_u16(record + WIA_AT_PORT_HOST_RANK);
    uint32_t zero_point = wia_u32(record + WIA_AT_PORT_ZERO_POINT);
    const uint8_t *buffer_record;
    uint32_t bytes;
    uint32_t kind;

    if (buffer >= buffers)
        return wia_fail(wia, WIA_E_LAYOUT, at + WIA_AT_PORT_BUFFER, buffer, buffers);
    buffer_record = wia_record(wia, WIA_SECTION_BUFFERS, buffer, WIA_SIZE_BUFFER);
    bytes = wia_u32(buffer_record + WIA_AT_BUFFER_BYTES);
    kind = wia_u32(buffer_record + WIA_AT_BUFFER_KIND);
    if (string_at(wia, record + WIA_AT_PORT_NAME) == NULL || kind == WIA_BUFFER_SCRATCH)
        return wia_fail(wia, WIA_E_LAYOUT, at, kind, WIA_BUFFER_OUTPUT);
    if (wia_u16(record + WIA_AT_PORT_HOST_DTYPE) > WIA_DTYPE_INT8 || rank > WIA_MAX_RANK
        || !is_permutation(record + WIA_AT_PORT_PERM) || zero_point + 128u > 255u
        || !scale_ok(wia_u64(record + WIA_AT_PORT_SCALE))
        || wia_u32(record + WIA_AT_PORT_RESERVED) != 0u)
        return wia_fail(wia, WIA_E_LAYOUT, at + WIA_AT_PORT_HOST_DTYPE, 0u, 0u);
    if (!shape_is(record + WIA_AT_PORT_DEVICE_SHAPE, 4u, bytes)
        || !shape_is(record + WIA_AT_PORT_HOST_SHAPE, rank, bytes)
        || !is_zero(record + WIA_AT_PORT_HOST_SHAPE + 4u * rank, 4u * (WIA_MAX_RANK - rank)))
        return wia_fail(wia, WIA_E_LAYOUT, at + WIA_AT_PORT_DEVICE_SHAPE, 0u, bytes);
    if (kind == WIA_BUFFER_INPUT) {
        if (wia->summary.outputs != 0u)
            return wia_fail(wia, WIA_E_LAYOUT, at, kind, WIA_BUFFER_OUTPUT);
        wia->summary.inputs++;
    } else {
        wia->summary.outputs++;
    }
    return WIA_OK;
}

/* Every input buffer has one port, every output buffer at least one. */
static int check_bound(wia_t *wia)
{
    uint32_t buffers = wia->bytes_[WIA_SECTION_BUFFERS] / WIA_SIZE_BUFFER;
    uint32_t ports = wia->summary.inputs + wia->summary.outputs;
    uint32_t i;
    uint32_t p;

    for (i = 0u; i < buffers; i++) {
        const uint8_t *record = wia_record(wia, WIA_SECTION_BUFFERS, i, WIA_SIZE_BUFFER);
        uint32_t kind = wia_u32(record + WIA_AT_BUFFER_KIND);
        uint32_t bound = 0u;

        for (p = 0u; p < ports; p++)
            bound += wia_u32(wia_record(wia, WIA_SECTION_PORTS, p, WIA_SIZE_PORT) + WIA_AT_PORT_BUFFER) == i;
        if ((kind == WIA_BUFFER_INPUT && bound != 1u) || (kind == WIA_BUFFER_OUTPUT && bound == 0u))
            return wia_fail(wia, WIA_E_LAYOUT, wia->offset_[WIA_SECTION_BUFFERS] + i * WIA_SIZE_BUFFER, bound, 1u);
    }
    return WIA_OK;
}

static int parse_ports(wia_t *wia)
{
    uint32_t count = wia->bytes_[WIA_SECTION_PORTS] / WIA_SIZE_PORT;
    uint32_t i;

    if (count > WIA_MAX_PORTS)
        return wia_fail(wia, WIA_E_LAYOUT, wia->offset_[WIA_SECTION_PORTS], count, WIA_MAX_PORTS);
    for (i = 0u; i < count; i++) {
        int code = parse_port(wia, i);

        if (code != WIA_OK)
            return code;
    }
    if (wia->summary.outputs == 0u)
        return wia_fail(wia, WIA_E_LAYOUT, wia->offset_[WIA_SECTION_PORTS], 0u, 1u);
    return check_bound(wia);
}

/* The source map tiles the program. */
static int parse_layers(wia_t *wia)
{
    uint32_t count = wia->bytes_[WIA_SECTION_LAYERS] / WIA_SIZE_LAYER;
    uint32_t end = 0u;
    uint32_t i;

    if (count > WIA_MAX_LAYERS)
        return wia_fail(wia, WIA_E_LAYOUT, wia->offset_[WIA_SECTION_LAYERS], count, WIA_MAX_LAYERS);
    for (i = 0u; i < count; i++) {
        uint32_t at = wia->offset_[WIA_SECTION_LAYERS] + i * WIA_SIZE_LAYER;
        const uint8_t *record = wia->image_ + at;
        uint32_t start = wia_u32(record + WIA_AT_LAYER_START);

        if (string_at(wia, record + WIA_AT_LAYER_NAME) == NULL || string_at(wia, record + WIA_AT_LAYER_KIND) == NULL)
            return wia_fail(wia, WIA_E_LAYOUT, at, 0u, 0u);
        if (start != end || wia_u32(record + WIA_AT_LAYER_END) < start)
            return wia_fail(wia, WIA_E_LAYOUT, at + WIA_AT_LAYER_START, start, end);
        end = wia_u32(record + WIA_AT_LAYER_END);
    }
    if (end != wia->bytes_[WIA_SECTION_PROGRAM] || end == 0u)
        return wia_fail(wia, WIA_E_LAYOUT, wia->offset_[WIA_SECTION_LAYERS], end, wia->bytes_[WIA_SECTION_PROGRAM]);
    wia->summary.layers = count;
    return WIA_OK;
}

int wia_parse(wia_t *wia, const uint8_t *image, size_t image_bytes)
{
    static int (*const steps[])(wia_t *) = {parse_sections, parse_strings, parse_target,
                                            parse_buffers,  parse_ports,   parse_layers};
    int code = parse_header(wia, image, image_bytes);
    size_t i;

    for (i = 0u; code == WIA_OK && i < sizeof steps / sizeof steps[0]; i++)
        code = steps[i](wia);
    if (code != WIA_OK)
        return code;
    wia->summary.program_bytes = wia->bytes_[WIA_SECTION_PROGRAM];
    wia->summary.alignment_bytes = wia->target.memory_alignment_bytes;
    return WIA_OK;
}

int wia_port(const wia_t *wia, uint32_t index, wia_port_t *port)
{
    const uint8_t *record;
    const uint8_t *buffer;
    unsigned i;

    if (wia == NULL || port == NULL)
        return WIA_E_ARGUMENT;
    if (wia->state_ == WIA_STATE_EMPTY)
        return WIA_E_STATE;
    if (index >= wia->summary.inputs + wia->summary.outputs)
        return WIA_E_ARGUMENT;
    record = wia_record(wia, WIA_SECTION_PORTS, index, WIA_SIZE_PORT);
    buffer = wia_record(wia, WIA_SECTION_BUFFERS, wia_u32(record + WIA_AT_PORT_BUFFER), WIA_SIZE_BUFFER);
    port->name = string_at(wia, record + WIA_AT_PORT_NAME);
    port->output = index >= wia->summary.inputs;
    port->bytes = wia_u32(buffer + WIA_AT_BUFFER_BYTES);
    port->host_dtype = wia_u16(record + WIA_AT_PORT_HOST_DTYPE);
    port->host_rank = wia_u16(record + WIA_AT_PORT_HOST_RANK);
    port->zero_point = (int32_t)(wia_u32(record + WIA_AT_PORT_ZERO_POINT) + 128u) - 128;
    port->scale_bits = wia_u64(record + WIA_AT_PORT_SCALE);
    for (i = 0u; i < 4u; i++) {
        port->device_shape[i] = wia_u32(record + WIA_AT_PORT_DEVICE_SHAPE + 4u * i);
        port->perm[i] = record[WIA_AT_PORT_PERM + i];
    }
    for (i = 0u; i < WIA_MAX_RANK; i++)
        port->host_shape[i] = wia_u32(record + WIA_AT_PORT_HOST_SHAPE + 4u * i);
    return WIA_OK;
}
