/* fuzz_image.c: any bytes as an image. Parse and verify must survive them, and what they accept must run on the
 * simulator without a fault. Build with -fsanitize=fuzzer, or with replay.c.
 *
 * The bytes are tried twice: as they are, and with magic, versions, length and checksum put right, so that
 * mutations get behind the first checks. */
#include <stdlib.h>
#include <string.h>

#include "hal_sim.h"
#include "wia/gen/wia_isa.h"
#include "wia/wia.h"

#define STEPS 20000u
#define WORK_CYCLES 2000000u
#define ALIGNMENT_BYTES 256u /* of all blocks here; the largest that a target may ask for */
#define MAX_TENSOR_BYTES (UINT64_C(1) << 22)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *aligned(size_t size)
{
    void *block = NULL;

    if (posix_memalign(&block, ALIGNMENT_BYTES, size != 0u ? size : 1u) != 0)
        abort();
    return block;
}

static void put(uint8_t *bytes, uint32_t value, unsigned count)
{
    unsigned i;

    for (i = 0u; i < count; i++)
        bytes[i] = (uint8_t)(value >> 8u * i & 0xffu);
}

/* CRC-32 bit by bit, written apart from the runtime's. */
static uint32_t crc_bits(uint32_t crc, const uint8_t *bytes, size_t count)
{
    size_t i;
    unsigned bit;

    for (i = 0u; i < count; i++) {
        crc ^= bytes[i];
        for (bit = 0u; bit < 8u; bit++)
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return crc;
}

static void repair(uint8_t *image, size_t size)
{
    static const uint8_t magic[WIA_SIZE_MAGIC] = WIA_MAGIC;
    uint32_t crc;

    memcpy(image, magic, sizeof magic);
    put(image + WIA_AT_HEADER_FORMAT_VERSION, WIA_FORMAT_VERSION, 2u);
    put(image + WIA_AT_HEADER_ISA_VERSION, WIA_ISA_VERSION, 2u);
    put(image + WIA_AT_HEADER_TOTAL_BYTES, (uint32_t)size, 4u);
    crc = crc_bits(0xffffffffu, image, WIA_AT_HEADER_CRC32);
    crc = crc_bits(crc, image + WIA_AT_HEADER_CRC32 + 4u, size - WIA_AT_HEADER_CRC32 - 4u);
    put(image + WIA_AT_HEADER_CRC32, ~crc, 4u);
}

/* Tensors of exactly the sizes that the ports say. */
static void run(wia_t *wia)
{
    wia_tensor_t tensors[WIA_MAX_PORTS];
    uint32_t ports = wia->summary.inputs + wia->summary.outputs;
    wia_tensors_t all;
    uint32_t i;
    int code;

    memset(&all, 0, sizeof all);
    for (i = 0u; i < ports; i++) {
        wia_port_t port;

        if (wia_port(wia, i, &port) != WIA_OK)
            abort();
        tensors[i].bytes = port.bytes;
        tensors[i].data = aligned(port.bytes);
        memset(tensors[i].data, 0x5a, port.bytes);
    }
    all.inputs = tensors;
    all.input_count = wia->summary.inputs;
    all.outputs = tensors + wia->summary.inputs;
    all.output_count = wia->summary.outputs;
    all.scratch.bytes = (size_t)wia->summary.scratch_bytes;
    all.scratch.data = aligned(all.scratch.bytes);
    code = wia_run(wia, &all);
    /* A verified program ends well; a long one may meet the limit that this test sets. */
    if (code != WIA_OK && !(code == WIA_E_DEVICE && wia->fault.found == (uint32_t)WIA_E_TIMEOUT))
        abort();
    for (i = 0u; i < ports; i++)
        free(tensors[i].data);
    free(all.scratch.data);
}

static uint64_t tensor_bytes(const wia_t *wia)
{
    uint64_t bytes = wia->summary.scratch_bytes + wia->summary.staging_bytes;
    uint32_t i;

    for (i = 0u; i < wia->summary.inputs; i++) {
        wia_port_t port;

        bytes += wia_port(wia, i, &port) == WIA_OK ? port.bytes : 0u;
    }
    return bytes;
}

static void try_image(const uint8_t *image, size_t size)
{
    const uint8_t *numbers;
    wia_config_t config = {0};
    wia_sim_desc_t desc = {0};
    wia_hal_sim_t device;
    wia_t wia;
    void *memory;
    size_t bytes;

    config.max_steps = STEPS;
    if (wia_init(&wia, NULL, &config) != WIA_OK)
        abort();
    if (wia_load(&wia, image, size) != WIA_OK || tensor_bytes(&wia) > MAX_TENSOR_BYTES
        || ALIGNMENT_BYTES % wia.summary.alignment_bytes != 0u)
        return;
    numbers = image + wia_target_word(image + WIA_SIZE_HEADER + WIA_AT_SECTION_OFFSET);
    desc.target = numbers;
    desc.work_limit_cycles = WORK_CYCLES;
    bytes = wia_sim_size(&desc);
    if (bytes == 0u) /* both check the same table of ranges */
        abort();
    memory = malloc(bytes);
    if (memory == NULL || wia_hal_sim_init(&device, &desc, image + WIA_AT_HEADER_TARGET_DIGEST, memory, bytes) != 0)
        abort();
    if (wia_init(&wia, &device.hal, &config) != WIA_OK || wia_load(&wia, image, size) != WIA_OK)
        abort();
    run(&wia);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *image = (uint8_t *)aligned(size);

    if (size != 0u)
        memcpy(image, data, size);
    try_image(image, size);
    if (size >= WIA_SIZE_HEADER) {
        repair(image, size);
        try_image(image, size);
    }
    free(image);
    return 0;
}
