/* harness.h: what the C tests share: checks, image files, and a device by name ("sim" or "record"). */
#ifndef WIA_TEST_HARNESS_H
#define WIA_TEST_HARNESS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hal_record.h"
#include "hal_sim.h"
#include "wia/wia.h"

static int failures;

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);         \
            failures++;                                                    \
        }                                                                  \
    } while (0)

#define CHECK_CODE(expression, expected)                                                              \
    do {                                                                                              \
        int code_ = (expression);                                                                     \
        if (code_ != (expected)) {                                                                    \
            printf("%s:%d: %s gave %s, expected %s\n", __FILE__, __LINE__, #expression,               \
                   wia_error_text(code_), wia_error_text(expected));                                  \
            failures++;                                                                               \
        }                                                                                             \
    } while (0)

typedef struct {
    uint8_t *bytes; /* 64-byte aligned, exactly `size` bytes: a sanitizer sees every read beyond */
    size_t size;
} file_t;

static inline void *aligned_copy(const void *bytes, size_t size)
{
    void *copy = NULL;

    if (posix_memalign(&copy, 64u, size != 0u ? size : 1u) != 0)
        abort();
    if (size != 0u)
        memcpy(copy, bytes, size);
    return copy;
}

static inline file_t read_file(const char *path)
{
    FILE *stream = fopen(path, "rb");
    file_t file = {NULL, 0u};
    uint8_t *bytes;
    long size;

    if (stream == NULL || fseek(stream, 0, SEEK_END) != 0) {
        printf("%s: cannot read\n", path);
        exit(2);
    }
    size = ftell(stream);
    rewind(stream);
    bytes = (uint8_t *)malloc((size_t)size + 1u);
    file.size = fread(bytes, 1u, (size_t)size, stream);
    fclose(stream);
    file.bytes = (uint8_t *)aligned_copy(bytes, file.size);
    free(bytes);
    return file;
}

static inline const uint8_t *target_numbers(const file_t *image)
{
    return image->bytes + wia_target_word(image->bytes + WIA_SIZE_HEADER + WIA_AT_SECTION_OFFSET);
}

typedef struct {
    bool simulated;
    const wia_hal_t *hal;
    wia_hal_sim_t sim;
    void *memory;
    wia_hal_record_t record;
    wia_record_call_t calls[4096];
} device_t;

/* A device of the target that `image` was compiled for. */
static inline void device_open(device_t *device, const char *kind, const file_t *image)
{
    const uint8_t *digest = image->bytes + WIA_AT_HEADER_TARGET_DIGEST;

    memset(device, 0, sizeof *device);
    device->simulated = strcmp(kind, "sim") == 0;
    if (device->simulated) {
        wia_sim_desc_t desc = {0};
        size_t bytes;

        desc.target = target_numbers(image);
        bytes = wia_sim_size(&desc);
        device->memory = malloc(bytes);
        CHECK(wia_hal_sim_init(&device->sim, &desc, digest, device->memory, bytes) == WIA_SIM_OK);
        device->hal = &device->sim.hal;
    } else {
        wia_hal_record_init(&device->record, target_numbers(image), digest, device->calls,
                            sizeof device->calls / sizeof device->calls[0]);
        device->hal = &device->record.hal;
    }
}

static inline void device_close(device_t *device)
{
    free(device->memory);
}

/* The bytes of a binding as the device sees them. */
static inline uint8_t *bound(const wia_hal_record_t *self, unsigned binding)
{
    return (uint8_t *)wia_device_pointer(self->device.bindings[binding].address);
}

#endif
