/* wia.h: run compiled regions on a WIA accelerator. C99, freestanding; no allocation, no globals, no output.
 *
 * The smallest complete example (image.bin from byoc-accel, one input and one output, no scratch):
 *
 *     extern const uint8_t image[];                 64-byte aligned, may lie in flash
 *     extern const size_t image_bytes;
 *
 *     int infer(const wia_hal_t *hal, wia_tensor_t x, wia_tensor_t y)
 *     {
 *         wia_t wia;
 *         wia_tensors_t tensors = {0};
 *         int code;
 *
 *         tensors.inputs = &x;                      int8, NHWC, {data, bytes}
 *         tensors.input_count = 1u;
 *         tensors.outputs = &y;
 *         tensors.output_count = 1u;
 *         code = wia_init(&wia, hal, NULL);         is there a device?
 *         if (code == WIA_OK)
 *             code = wia_load(&wia, image, image_bytes);  parse and verify: nothing is trusted before this
 *         if (code == WIA_OK)
 *             code = wia_run(&wia, &tensors);       clean caches, start, wait, invalidate caches
 *         return code;                              0, or negative: wia_error_text(code)
 *     }
 *
 * A wia_t may be used by one thread at a time. Several may share a device when their runs do not overlap. */
#ifndef WIA_H
#define WIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wia/gen/wia_errors.h"
#include "wia/gen/wia_format.h"
#include "wia/gen/wia_target.h"
#include "wia/wia_hal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* wia_poll: the device is still at work. */
#define WIA_BUSY 1

/* Options; all zero are the defaults. */
typedef struct wia_config {
    uint64_t timeout_cycles; /* of hal->cycle_counter, from start to done; 0: wait for ever */
    uint64_t address_offset; /* device address = CPU address + address_offset (modulo 2^64) */
    uint64_t max_steps;      /* work that verifying a program may take, in instructions; 0: 2^26 */
} wia_config_t;

/* A tensor in memory that the device can reach. Must be aligned to summary.alignment_bytes, and must not share
 * a cache line with anything the CPU writes during a run. */
typedef struct wia_tensor {
    void *data;
    size_t bytes; /* at least what the port says */
} wia_tensor_t;

/* Everything one run works on; must stay valid until the run is over. Tensors must not overlap. */
typedef struct wia_tensors {
    const wia_tensor_t *inputs; /* in port order; only read */
    uint32_t input_count;
    const wia_tensor_t *outputs; /* in port order */
    uint32_t output_count;
    wia_tensor_t scratch; /* summary.scratch_bytes; {NULL, 0} if that is 0 */
    wia_tensor_t staging; /* {NULL, 0}: the device writes the outputs directly, and a hardware fault or timeout
                             leaves them half-written. With summary.staging_bytes of memory they are written
                             only after the device has finished. */
} wia_tensors_t;

/* What wia_load found; read-only. */
typedef struct wia_summary {
    const char *name;         /* of the region; UTF-8 inside the image, as all strings */
    const char *target_name;
    uint32_t inputs;          /* ports 0 .. inputs - 1 are inputs, then come the outputs */
    uint32_t outputs;
    uint32_t layers;          /* records of the source map */
    uint32_t program_bytes;
    uint32_t image_bytes;
    uint32_t alignment_bytes; /* of every tensor, scratch and staging */
    uint64_t scratch_bytes;
    uint64_t staging_bytes;
} wia_summary_t;

/* One input or output. Runtime and device use the device side only; the host side is for adapters:
 * host array = device array .transpose(perm) .reshape(host_shape). */
typedef struct wia_port {
    const char *name;
    bool output;
    uint32_t bytes;
    uint32_t device_shape[4]; /* N, H, W, C */
    uint32_t host_dtype;      /* WIA_DTYPE_* */
    uint32_t host_rank;
    uint32_t host_shape[WIA_MAX_RANK];
    uint8_t perm[4];
    int32_t zero_point;
    uint64_t scale_bits; /* IEEE 754 binary64; x = (q - zero_point) * scale in float32 */
} wia_port_t;

/* Where the last error was. */
typedef struct wia_fault {
    uint32_t where;    /* byte offset in the program (OPCODE .. TOKEN, DEVICE) or image (others); tensor number
                          (BINDING); number of the target field, from 1 (TARGET) */
    uint32_t found;    /* numbers that differ, if the check has such; the device's fault code (DEVICE) */
    uint32_t expected;
} wia_fault_t;

/* State; belongs to the caller, who reads only the first four members. */
typedef struct wia {
    wia_summary_t summary;
    wia_fault_t fault;
    uint64_t cycles;      /* of the last finished run, counted by the device */
    wia_target_t target;  /* numbers of the device, or of the image when there is no device */

    wia_hal_t hal_;
    wia_config_t config_;
    bool device_;
    uint8_t state_;
    const uint8_t *image_;
    uint32_t offset_[WIA_SECTION_COUNT];
    uint32_t bytes_[WIA_SECTION_COUNT];
    uint64_t start_cycles_;
    wia_tensors_t tensors_;
} wia_t;

/* Make `wia` a context for the device behind `hal` and check that it is one. `hal` and `config` are copied.
 * hal = NULL: no device; wia_load then checks images for their own target, and nothing can run.
 * ARGUMENT, DEVICE (no answer, strange numbers), VERSION (of the instruction set). */
int wia_init(wia_t *wia, const wia_hal_t *hal, const wia_config_t *config);

/* Parse and verify an image and use it in place: it must stay valid and unchanged. `image` is 64-byte aligned;
 * `image_bytes` may be more than the image has. After an error nothing is loaded. */
int wia_load(wia_t *wia, const void *image, size_t image_bytes);

/* Describe port `index`, inputs first. ARGUMENT, STATE (nothing loaded). */
int wia_port(const wia_t *wia, uint32_t index, wia_port_t *port);

/* wia_start, then wait until the run is over. */
int wia_run(wia_t *wia, const wia_tensors_t *tensors);

/* Bind tensors and start the device; returns while it works. BINDING, SCRATCH: nothing was started. */
int wia_start(wia_t *wia, const wia_tensors_t *tensors);

/* WIA_BUSY, or the run is over: WIA_OK and the outputs are there, or DEVICE, or TIMEOUT (the run was aborted). */
int wia_poll(wia_t *wia);

/* Stop a run. Its outputs are void. TIMEOUT: the device did not stop. */
int wia_abort(wia_t *wia);

/* Name and meaning of an error code; never NULL. */
const char *wia_error_text(int code);

#ifdef __cplusplus
}
#endif

#endif
