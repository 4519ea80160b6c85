/* hal_record.h: a fake device for tests. It records every call and fails on demand. */
#ifndef WIA_HAL_RECORD_H
#define WIA_HAL_RECORD_H

#include "hal_device.h"

typedef enum {
    WIA_RECORD_READ,
    WIA_RECORD_WRITE,
    WIA_RECORD_CLEAN,
    WIA_RECORD_INVALIDATE,
    WIA_RECORD_WAIT
} wia_record_kind_t;

typedef struct wia_record_call {
    wia_record_kind_t kind;
    uint32_t offset;     /* read, write */
    uint32_t value;      /* read, write */
    const void *address; /* clean, invalidate */
    size_t bytes;        /* clean, invalidate */
} wia_record_call_t;

/* What the device does after START. */
typedef enum {
    WIA_RECORD_FINISHES, /* done */
    WIA_RECORD_FAULTS,   /* fault, with device.fault_code and fault_offset as the test set them */
    WIA_RECORD_HANGS,    /* busy until aborted */
    WIA_RECORD_STUCK,    /* busy even after an abort */
    WIA_RECORD_VANISHES, /* every register reads as all ones */
    WIA_RECORD_RESETS    /* status reads as 0: neither busy nor done */
} wia_record_plan_t;

typedef struct wia_hal_record {
    wia_hal_t hal; /* give this to wia_init */
    wia_device_t device;
    wia_record_plan_t plan;
    uint32_t busy_reads; /* status reads after START that still say busy */
    void (*execute)(struct wia_hal_record *self); /* plays the program at its end, even of a fault; may be NULL */

    wia_record_call_t *calls; /* the caller's memory */
    size_t capacity;
    size_t count; /* calls made, may exceed capacity */

    bool started;
    uint32_t busy_left;
    uint64_t now_cycles; /* one per call */
} wia_hal_record_t;

/* Make `device` (which must not move afterwards) a healthy fake that finishes at once. */
void wia_hal_record_init(wia_hal_record_t *device, const uint8_t *numbers, const uint8_t *digest,
                         wia_record_call_t *calls, size_t capacity);

#endif
