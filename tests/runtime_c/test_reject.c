/* test_reject.c CASES HEALTHY.wia: load many damaged images and compare the error codes.
 *
 * CASES is a sequence of: int32 expected code (1: any code but a crash), uint32 bytes, the bytes. Every image is
 * loaded without a device and with the device of HEALTHY, from a block of exactly its size. Prints
 * one line per disagreement and at the end how many images gave which code. */
#include "harness.h"

#define STEPS 20000u

static int load(const uint8_t *bytes, size_t size, const wia_hal_t *hal)
{
    wia_config_t config = {0};
    wia_t wia;
    int code;

    config.max_steps = STEPS;
    code = wia_init(&wia, hal, &config);
    if (code == WIA_OK)
        code = wia_load(&wia, bytes, size);
    if (code != WIA_OK) {
        wia_port_t port;

        CHECK_CODE(wia_port(&wia, 0u, &port), WIA_E_STATE); /* nothing stays loaded */
        CHECK(wia.summary.name == NULL);
    }
    return code;
}

int main(int argc, char **argv)
{
    static device_t device;
    unsigned counts[32] = {0};
    file_t file;
    file_t healthy;
    size_t at;
    int code;

    if (argc != 3)
        return 2;
    file = read_file(argv[1]);
    healthy = read_file(argv[2]);
    device_open(&device, "record", &healthy);
    for (at = 0u; at + 8u <= file.size;) {
        int expected = (int32_t)wia_target_word(file.bytes + at);
        size_t size = wia_target_word(file.bytes + at + 4u);
        uint8_t *image = (uint8_t *)aligned_copy(file.bytes + at + 8u, size);

        code = load(image, size, NULL);
        if (code != expected && expected != 1) {
            printf("case at %zu: %s, expected %s\n", at, wia_error_text(code), wia_error_text(expected));
            failures++;
        }
        counts[code <= 0 && code > -32 ? -code : 31]++;
        device.record.count = 0u;
        if (load(image, size, device.hal) == WIA_OK && code != WIA_OK) {
            printf("case at %zu: only the device accepts it\n", at);
            failures++;
        }
        free(image);
        at += 8u + size;
    }
    for (code = 0; code < 32; code++)
        if (counts[code] != 0u)
            printf("count %d %u\n", -code, counts[code]);
    free(file.bytes);
    free(healthy.bytes);
    return failures != 0;
}
