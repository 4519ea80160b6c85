/* test_faults.c COPY.wia: what the runtime does with its HAL, and when the device fails. */
#include "harness.h"

#define BYTES 64u

static file_t image;
static device_t device;
static wia_t wia;
static int8_t x[BYTES] __attribute__((aligned(64)));
static int8_t y[BYTES] __attribute__((aligned(64)));
static int8_t scratch[BYTES] __attribute__((aligned(64)));
static int8_t staging[BYTES] __attribute__((aligned(64)));
static wia_tensor_t input = {x, BYTES};
static wia_tensor_t output = {y, BYTES};
static wia_tensors_t tensors;

static void play(wia_hal_record_t *self)
{
    memcpy(bound(self, 1u), bound(self, 0u), BYTES);
}

static void setup(const wia_config_t *config)
{
    memset(x, 0x11, BYTES);
    memset(y, 0x55, BYTES);
    memset(&tensors, 0, sizeof tensors);
    tensors.inputs = &input;
    tensors.input_count = 1u;
    tensors.outputs = &output;
    tensors.output_count = 1u;
    tensors.scratch.data = scratch;
    tensors.scratch.bytes = BYTES;
    device_open(&device, "record", &image);
    device.record.execute = play;
    CHECK_CODE(wia_init(&wia, device.hal, config), WIA_OK);
    CHECK_CODE(wia_load(&wia, image.bytes, image.size), WIA_OK);
}

static bool all_are(const int8_t *bytes, int8_t value)
{
    unsigned i;

    for (i = 0u; i < BYTES; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/* Number of the first (or last) call of a kind that matches; -1 if there is none. */
static long find(wia_record_kind_t kind, uint32_t offset, const void *address, bool last)
{
    long found = -1;
    size_t i;

    for (i = 0u; i < device.record.count; i++) {
        const wia_record_call_t *call = &device.calls[i];

        if (call->kind == kind && call->offset == offset && (address == NULL || call->address == address)
            && (found < 0 || last))
            found = (long)i;
    }
    return found;
}

static long count(wia_record_kind_t kind)
{
    long n = 0;
    size_t i;

    for (i = 0u; i < device.record.count; i++)
        n += device.calls[i].kind == kind;
    return n;
}

static void test_cache_order(void)
{
    long start;
    long done;

    setup(NULL);
    CHECK(find(WIA_RECORD_CLEAN, 0u, image.bytes, false) >= 0); /* the program, by wia_load */
    device.record.count = 0u;
    device.record.busy_reads = 5u;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_OK);
    start = find(WIA_RECORD_WRITE, WIA_REG_CONTROL, NULL, false) + 1; /* acknowledge comes first */
    while (device.calls[start].kind != WIA_RECORD_WRITE || device.calls[start].offset != WIA_REG_CONTROL)
        start++;
    CHECK(device.calls[start].value == WIA_CONTROL_START);
    done = find(WIA_RECORD_READ, WIA_REG_STATUS, NULL, true);
    CHECK(device.calls[done].value == WIA_STATUS_DONE && done > start);
    CHECK(find(WIA_RECORD_CLEAN, 0u, x, true) >= 0 && find(WIA_RECORD_CLEAN, 0u, x, true) < start);
    CHECK(find(WIA_RECORD_CLEAN, 0u, y, true) >= 0 && find(WIA_RECORD_CLEAN, 0u, y, true) < start);
    CHECK(find(WIA_RECORD_CLEAN, 0u, scratch, true) >= 0 && find(WIA_RECORD_CLEAN, 0u, scratch, true) < start);
    CHECK(find(WIA_RECORD_INVALIDATE, 0u, y, false) > done);
    CHECK(count(WIA_RECORD_INVALIDATE) == 1);
    CHECK(count(WIA_RECORD_WAIT) == 5);
    CHECK(all_are(y, 0x11));
    /* the next run starts from a clean state */
    CHECK(device.record.device.status == 0u);
}

static void test_bindings(void)
{
    wia_config_t config = {0};
    const wia_device_t *d = &device.record.device;

    device.record.execute = NULL;
    config.address_offset = UINT64_C(0x100000000);
    setup(&config);
    device.record.execute = NULL; /* its addresses are no pointers here */
    CHECK_CODE(wia_run(&wia, &tensors), WIA_OK);
    CHECK(d->bindings[0].address == (uint64_t)(uintptr_t)x + config.address_offset && d->bindings[0].bytes == BYTES);
    CHECK(d->bindings[0].access == WIA_BINDING_ACCESS_READ);
    CHECK(d->bindings[1].address == (uint64_t)(uintptr_t)y + config.address_offset);
    CHECK(d->bindings[1].access == WIA_BINDING_ACCESS_WRITE);
    CHECK(d->bindings[2].access == (WIA_BINDING_ACCESS_READ | WIA_BINDING_ACCESS_WRITE));
    CHECK(d->program_address % 64u == 0u && d->program_bytes == wia.summary.program_bytes);
    CHECK(d->program_address - config.address_offset > (uint64_t)(uintptr_t)image.bytes);
    CHECK(d->program_address - config.address_offset < (uint64_t)(uintptr_t)image.bytes + image.size);
}

static void test_optional_callbacks(void)
{
    wia_hal_t hal;

    setup(NULL);
    hal = *device.hal;
    hal.clean_cache = NULL;
    hal.invalidate_cache = NULL;
    hal.wait_for_interrupt = NULL;
    hal.cycle_counter = NULL;
    CHECK_CODE(wia_init(&wia, &hal, NULL), WIA_OK);
    CHECK_CODE(wia_load(&wia, image.bytes, image.size), WIA_OK);
    device.record.busy_reads = 100u;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_OK);
    CHECK(all_are(y, 0x11));
}

static void test_identity(void)
{
    setup(NULL);
    device.record.device.id ^= 1u;
    CHECK_CODE(wia_init(&wia, device.hal, NULL), WIA_E_DEVICE);
    CHECK(wia.fault.found == (WIA_DEVICE_ID ^ 1u) && wia.fault.expected == WIA_DEVICE_ID);
    CHECK_CODE(wia_run(&wia, &tensors), WIA_E_STATE);
    setup(NULL);
    device.record.device.isa_version++;
    CHECK_CODE(wia_init(&wia, device.hal, NULL), WIA_E_VERSION);
    setup(NULL);
    device.record.device.numbers[0] = 0u; /* no lanes */
    CHECK_CODE(wia_init(&wia, device.hal, NULL), WIA_E_DEVICE);
    setup(NULL);
    device.record.device.digest[5] ^= 1u;
    CHECK_CODE(wia_load(&wia, image.bytes, image.size), WIA_E_TARGET);
    CHECK(wia.fault.where == 0u);
    setup(NULL);
    device.record.device.numbers[8] ^= 1u; /* array.latency_cycles, which no bound depends on */
    CHECK_CODE(wia_load(&wia, image.bytes, image.size), WIA_E_TARGET);
    CHECK(wia.fault.where == 3u);
}

/* A fault in the middle of a run: the fake has already written everything. */
static void test_fault(bool staged)
{
    setup(NULL);
    if (staged) {
        tensors.staging.data = staging;
        tensors.staging.bytes = BYTES;
    }
    device.record.plan = WIA_RECORD_FAULTS;
    device.record.device.fault_code = (uint32_t)WIA_E_BOUNDS;
    device.record.device.fault_offset = 40u;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_E_DEVICE);
    CHECK(wia.fault.where == 40u && wia.fault.found == (uint32_t)WIA_E_BOUNDS);
    CHECK(!staged || all_are(y, 0x55));
    device.record.plan = WIA_RECORD_FINISHES;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_OK);
    CHECK(all_are(y, 0x11));
}

static void test_timeout(void)
{
    wia_config_t config = {0};

    config.timeout_cycles = 500u;
    setup(&config);
    tensors.staging.data = staging;
    tensors.staging.bytes = BYTES;
    device.record.plan = WIA_RECORD_HANGS;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_E_TIMEOUT);
    CHECK(device.record.device.status == 0u && all_are(y, 0x55));
    CHECK(count(WIA_RECORD_WAIT) > 10 && count(WIA_RECORD_WAIT) < 600);
    device.record.plan = WIA_RECORD_FINISHES;
    device.record.busy_reads = 20u;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_OK);
    CHECK(all_are(y, 0x11));
    device.record.plan = WIA_RECORD_STUCK;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_E_TIMEOUT);
    CHECK_CODE(wia_run(&wia, &tensors), WIA_E_STATE); /* still busy: no second run on top of it */
}

static void test_lost_device(wia_record_plan_t plan)
{
    setup(NULL);
    tensors.staging.data = staging;
    tensors.staging.bytes = BYTES;
    device.record.plan = plan;
    CHECK_CODE(wia_run(&wia, &tensors), WIA_E_DEVICE);
    CHECK(all_are(y, 0x55));
    CHECK_CODE(wia_poll(&wia), WIA_E_STATE);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    image = read_file(argv[1]);
    test_cache_order();
    test_bindings();
    test_optional_callbacks();
    test_identity();
    test_fault(false);
    test_fault(true);
    test_timeout();
    test_lost_device(WIA_RECORD_VANISHES);
    test_lost_device(WIA_RECORD_RESETS);
    free(image.bytes);
    return failures != 0;
}
