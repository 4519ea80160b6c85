/* test_api.c sim|record COPY.wia TWINS.wia OTHER.wia: the public functions, on either device.
 * COPY and TWINS are images of one target, OTHER of another (tests/runtime_c/images.py). */
#include "harness.h"

#define BYTES 64u

typedef struct {
    int8_t x[BYTES] __attribute__((aligned(64)));
    int8_t y[BYTES] __attribute__((aligned(64)));
    int8_t scratch[BYTES] __attribute__((aligned(64)));
    int8_t staging[BYTES] __attribute__((aligned(64)));
    wia_tensor_t input;
    wia_tensor_t output;
    wia_tensors_t tensors;
} copy_t;

static file_t copy_image;
static file_t twins_image;
static file_t other_image;
static const char *kind;

/* The recording device plays the copy program. */
static void play_copy(wia_hal_record_t *self)
{
    memcpy(bound(self, 2u), bound(self, 0u), BYTES);
    memcpy(bound(self, 1u), bound(self, 2u), BYTES);
}

static void play_twins(wia_hal_record_t *self)
{
    memcpy(bound(self, 1u), bound(self, 2u), 32u);
    memcpy(bound(self, 3u), bound(self, 0u), 16u);
}

static void copy_setup(copy_t *copy)
{
    unsigned i;

    memset(copy, 0, sizeof *copy);
    for (i = 0u; i < BYTES; i++)
        copy->x[i] = (int8_t)(3 * (int)i - 90);
    memset(copy->y, 0x55, BYTES);
    copy->input.data = copy->x;
    copy->input.bytes = BYTES;
    copy->output.data = copy->y;
    copy->output.bytes = BYTES;
    copy->tensors.inputs = &copy->input;
    copy->tensors.input_count = 1u;
    copy->tensors.outputs = &copy->output;
    copy->tensors.output_count = 1u;
    copy->tensors.scratch.data = copy->scratch;
    copy->tensors.scratch.bytes = BYTES;
}

static bool untouched(const copy_t *copy)
{
    unsigned i;

    for (i = 0u; i < BYTES; i++)
        if (copy->y[i] != 0x55)
            return false;
    return true;
}

static void test_arguments(device_t *device)
{
    wia_hal_t hal = *device->hal;
    copy_t copy;
    wia_port_t port;
    wia_t wia;

    copy_setup(&copy);
    CHECK_CODE(wia_init(NULL, device->hal, NULL), WIA_E_ARGUMENT);
    hal.read_register = NULL;
    CHECK_CODE(wia_init(&wia, &hal, NULL), WIA_E_ARGUMENT);
    hal = *device->hal;
    hal.write_register = NULL;
    CHECK_CODE(wia_init(&wia, &hal, NULL), WIA_E_ARGUMENT);
    CHECK_CODE(wia_init(&wia, device->hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, NULL, 100u), WIA_E_ARGUMENT);
    CHECK_CODE(wia_load(NULL, copy_image.bytes, copy_image.size), WIA_E_ARGUMENT);
    CHECK_CODE(wia_load(&wia, copy_image.bytes + 4, copy_image.size - 4u), WIA_E_ARGUMENT);
    CHECK_CODE(wia_run(&wia, &copy.tensors), WIA_E_STATE);
    CHECK_CODE(wia_poll(&wia), WIA_E_STATE);
    CHECK_CODE(wia_abort(&wia), WIA_E_STATE);
    CHECK_CODE(wia_port(&wia, 0u, &port), WIA_E_STATE);
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_OK);
    CHECK_CODE(wia_port(&wia, 2u, &port), WIA_E_ARGUMENT);
    CHECK_CODE(wia_port(&wia, 0u, NULL), WIA_E_ARGUMENT);
    CHECK_CODE(wia_port(NULL, 0u, &port), WIA_E_ARGUMENT);
    CHECK_CODE(wia_start(&wia, NULL), WIA_E_ARGUMENT);
    CHECK_CODE(wia_start(NULL, &copy.tensors), WIA_E_ARGUMENT);
    CHECK_CODE(wia_poll(NULL), WIA_E_ARGUMENT);
    CHECK_CODE(wia_abort(NULL), WIA_E_ARGUMENT);
    CHECK_CODE(wia_poll(&wia), WIA_E_STATE);
    CHECK(untouched(&copy));
}

static void test_summary(device_t *device)
{
    wia_port_t port;
    wia_t wia;

    CHECK_CODE(wia_init(&wia, device->hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_OK);
    CHECK(strcmp(wia.summary.name, "copy") == 0);
    CHECK(strcmp(wia.summary.target_name, "tiny") == 0);
    CHECK(wia.summary.inputs == 1u && wia.summary.outputs == 1u && wia.summary.layers == 1u);
    CHECK(wia.summary.image_bytes == copy_image.size);
    CHECK(wia.summary.alignment_bytes == 16u);
    CHECK(wia.summary.scratch_bytes == BYTES && wia.summary.staging_bytes == BYTES);
    CHECK(wia.target.array_rows == 4u && wia.target.sram_bytes == 8192u);
    CHECK_CODE(wia_port(&wia, 1u, &port), WIA_OK);
    CHECK(strcmp(port.name, "y") == 0 && port.output && port.bytes == BYTES);
    CHECK(port.host_dtype == WIA_DTYPE_INT8 && port.host_rank == 4u && port.host_shape[3] == 4u);
    CHECK(port.device_shape[0] == 1u && port.device_shape[1] == 4u && port.perm[3] == 3u);
    CHECK(port.zero_point == 0 && port.scale_bits == UINT64_C(0x3ff0000000000000));
}

static void test_run(device_t *device)
{
    copy_t copy;
    wia_t wia;
    int i;

    CHECK_CODE(wia_init(&wia, device->hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_OK);
    for (i = 0; i < 2; i++) {
        copy_setup(&copy);
        CHECK_CODE(wia_run(&wia, &copy.tensors), WIA_OK);
        CHECK(memcmp(copy.x, copy.y, BYTES) == 0);
        CHECK(wia.cycles > 0u);
    }
    copy_setup(&copy);
    copy.tensors.staging.data = copy.staging;
    copy.tensors.staging.bytes = BYTES;
    CHECK_CODE(wia_start(&wia, &copy.tensors), WIA_OK);
    CHECK(untouched(&copy)); /* the device writes to staging */
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_E_STATE);
    CHECK_CODE(wia_start(&wia, &copy.tensors), WIA_E_STATE);
    while ((i = wia_poll(&wia)) == WIA_BUSY)
        CHECK(untouched(&copy));
    CHECK_CODE(i, WIA_OK);
    CHECK(memcmp(copy.x, copy.y, BYTES) == 0 && memcmp(copy.x, copy.staging, BYTES) == 0);
    CHECK_CODE(wia_poll(&wia), WIA_E_STATE);
    copy_setup(&copy);
    CHECK_CODE(wia_start(&wia, &copy.tensors), WIA_OK);
    CHECK_CODE(wia_abort(&wia), WIA_OK);
    CHECK_CODE(wia_run(&wia, &copy.tensors), WIA_OK);
    CHECK(memcmp(copy.x, copy.y, BYTES) == 0);
}

static void test_tensors(device_t *device)
{
    copy_t copy;
    wia_t wia;
    unsigned i;

    CHECK_CODE(wia_init(&wia, device->hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_OK);
    for (i = 0u; i < 11u; i++) {
        int expected = i < 8u ? WIA_E_BINDING : WIA_E_SCRATCH;

        copy_setup(&copy);
        switch (i) {
        case 0u: copy.tensors.inputs = NULL; break;
        case 1u: copy.tensors.input_count = 2u; break;
        case 2u: copy.tensors.outputs = NULL; break;
        case 3u: copy.tensors.output_count = 0u; break;
        case 4u: copy.input.data = NULL; break;
        case 5u: copy.input.bytes--; break;
        case 6u: copy.output.data = copy.y + 8; break;
        case 7u: copy.output.bytes = 0u; break;
        case 8u: copy.tensors.scratch.data = NULL; break;
        case 9u: copy.tensors.scratch.bytes--; break;
        default:
            copy.tensors.staging.data = copy.staging;
            copy.tensors.staging.bytes = BYTES - 1u;
            break;
        }
        CHECK_CODE(wia_run(&wia, &copy.tensors), expected);
        CHECK(i != 5u || (wia.fault.where == 0u && wia.fault.found == BYTES - 1u && wia.fault.expected == BYTES));
        CHECK(i != 7u || (wia.fault.where == 1u && wia.fault.found == 0u));
        CHECK(untouched(&copy));
    }
    copy_setup(&copy);
    CHECK_CODE(wia_run(&wia, &copy.tensors), WIA_OK);
}

/* Two inputs in buffers that are not neighbours, and two output ports that share a buffer. */
static void test_twins(device_t *device, bool staged)
{
    int8_t first[16] __attribute__((aligned(16)));
    int8_t second[32] __attribute__((aligned(16)));
    int8_t a[32] __attribute__((aligned(16)));
    int8_t b[16] __attribute__((aligned(16)));
    int8_t c[16] __attribute__((aligned(16)));
    int8_t staging[48] __attribute__((aligned(16)));
    wia_tensor_t inputs[2] = {{first, sizeof first}, {second, sizeof second}};
    wia_tensor_t outputs[3] = {{a, sizeof a}, {b, sizeof b}, {c, sizeof c}};
    wia_tensors_t tensors = {0};
    wia_t wia;
    unsigned i;

    for (i = 0u; i < 32u; i++) {
        second[i] = (int8_t)(i * 7u);
        first[i % 16u] = (int8_t)(100 - (int)i);
    }
    tensors.inputs = inputs;
    tensors.input_count = 2u;
    tensors.outputs = outputs;
    tensors.output_count = 3u;
    if (staged) {
        tensors.staging.data = staging;
        tensors.staging.bytes = sizeof staging;
    }
    CHECK_CODE(wia_init(&wia, device->hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, twins_image.bytes, twins_image.size), WIA_OK);
    CHECK(wia.summary.inputs == 2u && wia.summary.outputs == 3u && wia.summary.staging_bytes == 48u);
    CHECK_CODE(wia_run(&wia, &tensors), WIA_OK);
    CHECK(memcmp(a, second, sizeof a) == 0);
    CHECK(memcmp(b, first, sizeof b) == 0);
    CHECK(memcmp(c, first, sizeof c) == 0);
}

static void test_foreign_target(device_t *device)
{
    copy_t copy;
    wia_t wia;

    copy_setup(&copy);
    CHECK_CODE(wia_init(&wia, device->hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, other_image.bytes, other_image.size), WIA_E_TARGET);
    CHECK(wia.fault.where == 1u && wia.fault.found == 16u && wia.fault.expected == 4u);
    CHECK(strcmp(wia_target_field_name(wia.fault.where), "array.rows") == 0);
    CHECK_CODE(wia_run(&wia, &copy.tensors), WIA_E_STATE); /* nothing is loaded after an error */
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_OK);
    CHECK_CODE(wia_load(&wia, other_image.bytes, other_image.size), WIA_E_TARGET);
    CHECK_CODE(wia_run(&wia, &copy.tensors), WIA_E_STATE);
    CHECK(untouched(&copy));
}

static void test_no_device(void)
{
    copy_t copy;
    wia_t wia;

    copy_setup(&copy);
    CHECK_CODE(wia_init(&wia, NULL, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, other_image.bytes, other_image.size), WIA_OK);
    CHECK(wia.target.array_rows == 16u);
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_OK);
    CHECK(wia.target.array_rows == 4u);
    CHECK_CODE(wia_run(&wia, &copy.tensors), WIA_E_STATE);
    CHECK(untouched(&copy));
}

/* An image may lie at the start of a larger block, as a flash partition is. */
static void test_partition(device_t *device)
{
    uint8_t *block = (uint8_t *)aligned_copy(copy_image.bytes, copy_image.size);
    uint8_t *larger = (uint8_t *)realloc(block, copy_image.size + 1000u);
    uint8_t *flash;
    wia_t wia;

    memset(larger + copy_image.size, 0xff, 1000u);
    flash = (uint8_t *)aligned_copy(larger, copy_image.size + 1000u);
    CHECK_CODE(wia_init(&wia, device->hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, flash, copy_image.size + 1000u), WIA_OK);
    free(larger);
    free(flash);
}

static void test_texts(void)
{
    int code;

    for (code = 0; code >= -19; code--)
        CHECK(strncmp(wia_error_text(code), "WIA_", 4u) == 0);
    CHECK(strstr(wia_error_text(WIA_E_CRC), "WIA_E_CRC: image checksum") != NULL);
    CHECK(strstr(wia_error_text(WIA_BUSY), "WIA_BUSY") != NULL);
    CHECK(strcmp(wia_error_text(-1000), "unknown error code") == 0);
}

static void test_step_limit(device_t *device)
{
    wia_config_t config = {0};
    wia_t wia;

    config.max_steps = 6u;
    CHECK_CODE(wia_init(&wia, device->hal, &config), WIA_OK);
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_E_LOOP);
    config.max_steps = 8u;
    CHECK_CODE(wia_init(&wia, device->hal, &config), WIA_OK);
    CHECK_CODE(wia_load(&wia, copy_image.bytes, copy_image.size), WIA_OK);
}

int main(int argc, char **argv)
{
    static device_t device;

    if (argc != 5)
        return 2;
    kind = argv[1];
    copy_image = read_file(argv[2]);
    twins_image = read_file(argv[3]);
    other_image = read_file(argv[4]);
    device_open(&device, kind, &copy_image);
    device.record.execute = play_copy;
    device.record.busy_reads = 3u;
    test_arguments(&device);
    test_summary(&device);
    test_run(&device);
    test_tensors(&device);
    test_foreign_target(&device);
    test_no_device();
    test_partition(&device);
    test_texts();
    test_step_limit(&device);
    device.record.execute = play_twins;
    test_twins(&device, false);
    test_twins(&device, true);
    device_close(&device);
    free(copy_image.bytes);
    free(twins_image.bytes);
    free(other_image.bytes);
    return failures != 0;
}
