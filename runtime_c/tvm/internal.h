/* internal.h: what the files of the TVM glue share. */
#ifndef WIA_TVM_INTERNAL_H
#define WIA_TVM_INTERNAL_H

#include "../hal/hal_sim.h"
#include "wia/wia.h"
#include "tvm_abi.h"

/* One simulated device of a thread. */
typedef struct wia_machine {
    struct wia_machine *next;
    uint8_t numbers[WIA_TARGET_BYTES];
    wia_hal_sim_t device;
    void *memory;
} wia_machine_t;

/* One image that a thread has loaded, with its buffers and counters. */
typedef struct wia_session {
    struct wia_session *next;
    const void *image;
    uint32_t crc32; /* of the image's header: a guard against an image that moved in at the same address */
    wia_t wia;
    wia_machine_t *machine;
    wia_port_t ports[WIA_MAX_PORTS];
    wia_tensor_t tensors[WIA_MAX_PORTS]; /* device side, in port order */
    wia_tensor_t scratch;
    uint8_t *arena; /* holds all of them */
    wia_sim_span_t *spans;
    void *cache; /* decoded weights; NULL: none */
    size_t cache_bytes;
    wia_sim_counters_t run_total; /* of the first run: all have the same */
    wia_sim_counters_t *run;    /* per layer, of the first run */
    wia_sim_counters_t *layers; /* per layer, of all runs */
    wia_sim_counters_t total;
    uint64_t runs;
} wia_session_t;

typedef struct wia_thread {
    struct wia_thread *next; /* of the library's list */
    wia_machine_t *machines;
    wia_session_t *sessions; /* in order of first use */
    char *text;              /* what wia_tvm_stats returned last */
    char error[512];
} wia_thread_t;

/* thread.c: state of the calling thread; NULL when there is no memory or the library is being unloaded. */
wia_thread_t *wia_tvm_thread(void);

/* session.c: the loaded form of an image. On failure *code says why, *fault where, and NULL is returned. */
wia_session_t *wia_tvm_session(wia_thread_t *thread, const void *image, size_t image_bytes, int *code,
                               wia_fault_t *fault);
void wia_tvm_free_sessions(wia_thread_t *thread);

/* convert.c: all elements of a host tensor in port's data type <-> the device's int8 NHWC. */
void wia_tvm_to_device(const wia_port_t *port, const uint8_t *host, int8_t *device);
void wia_tvm_to_host(const wia_port_t *port, const int8_t *device, uint8_t *host);

#endif
