/* session.c: images that a thread has verified, with their buffers; and the simulated devices they run on. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void free_session(wia_session_t *session)
{
    free(session->arena);
    free(session->spans);
    free(session->cache);
    free(session->run);
    free(session->layers);
    free(session);
}

void wia_tvm_free_sessions(wia_thread_t *thread)
{
    while (thread->sessions != NULL) {
        wia_session_t *session = thread->sessions;

        thread->sessions = session->next;
        free_session(session);
    }
    while (thread->machines != NULL) {
        wia_machine_t *machine = thread->machines;

        thread->machines = machine->next;
        free(machine->memory);
        free(machine);
    }
}

/* The thread's device with these numbers; made if there is none. */
static wia_machine_t *machine_of(wia_thread_t *thread, const uint8_t *numbers, const uint8_t *digest)
{
    wia_sim_desc_t desc;
    wia_machine_t *machine;
    size_t bytes;

    for (machine = thread->machines; machine != NULL; machine = machine->next)
        if (memcmp(machine->numbers, numbers, sizeof machine->numbers) == 0
            && memcmp(machine->device.device.digest, digest, sizeof machine->device.device.digest) == 0)
            return machine;
    machine = (wia_machine_t *)calloc(1u, sizeof *machine);
    if (machine == NULL)
        return NULL;
    memcpy(machine->numbers, numbers, sizeof machine->numbers);
    memset(&desc, 0, sizeof desc);
    desc.target = machine->numbers;
    bytes = wia_sim_size(&desc);
    machine->memory = bytes != 0u ? malloc(bytes) : NULL;
    if (machine->memory == NULL
        || wia_hal_sim_init(&machine->device, &desc, digest, machine->memory, bytes) != WIA_SIM_OK) {
        free(machine->memory);
        free(machine);
        return NULL;
    }
    machine->next = thread->machines;
    thread->machines = machine;
    return machine;
}

static size_t padded(const wia_session_t *session, uint64_t bytes)
{
    return (size_t)((bytes + session->wia.summary.alignment_bytes - 1u) / session->wia.summary.alignment_bytes
                    * session->wia.summary.alignment_bytes);
}

/* Device buffers of all ports and scratch, in one block. */
static int make_buffers(wia_session_t *session)
{
    const wia_summary_t *summary = &session->wia.summary;
    uint32_t ports = summary->inputs + summary->outputs;
    size_t bytes = summary->alignment_bytes + padded(session, summary->scratch_bytes);
    uint8_t *at;
    uint32_t i;

    for (i = 0u; i < ports; i++) {
        wia_port(&session->wia, i, &session->ports[i]);
        bytes += padded(session, session->ports[i].bytes);
    }
    session->arena = (uint8_t *)calloc(1u, bytes);
    if (session->arena == NULL)
        return WIA_E_MEMORY;
    at = session->arena + padded(session, (uintptr_t)session->arena) - (uintptr_t)session->arena;
    for (i = 0u; i < ports; i++) {
        session->tensors[i].data = at;
        session->tensors[i].bytes = session->ports[i].bytes;
        at += padded(session, session->ports[i].bytes);
    }
    session->scratch.data = at;
    session->scratch.bytes = (size_t)summary->scratch_bytes;
    return WIA_OK;
}

/* Spans and counters of the source map. */
static int make_layers(wia_session_t *session)
{
    uint32_t count = session->wia.summary.layers;
    const uint8_t *record = session->wia.image_ + session->wia.offset_[WIA_SECTION_LAYERS];
    uint32_t i;

    session->spans = (wia_sim_span_t *)calloc(count, sizeof *session->spans);
    session->run = (wia_sim_counters_t *)calloc(count, sizeof *session->run);
    session->layers = (wia_sim_counters_t *)calloc(count, sizeof *session->layers);
    if (session->spans == NULL || session->run == NULL || session->layers == NULL)
        return WIA_E_MEMORY;
    for (i = 0u; i < count; i++) {
        session->spans[i].start = wia_target_word(record + i * WIA_SIZE_LAYER + WIA_AT_LAYER_START);
        session->spans[i].end = wia_target_word(record + i * WIA_SIZE_LAYER + WIA_AT_LAYER_END);
    }
    return WIA_OK;
}

/* Memory that keeps decoded weights from run to run; a session can do without. */
static void make_cache(wia_session_t *session)
{
    wia_sim_desc_t desc;

    memset(&desc, 0, sizeof desc);
    desc.target = session->machine->numbers;
    session->cache_bytes = wia_sim_cache_size(
        &desc, (const uint8_t *)session->image + session->wia.offset_[WIA_SECTION_PROGRAM],
        session->wia.bytes_[WIA_SECTION_PROGRAM]);
    session->cache = session->cache_bytes != 0u ? calloc(1u, session->cache_bytes) : NULL;
}

/* Check the image for its own target; only then its numbers are good enough to build a device from. */
static int open_session(wia_thread_t *thread, wia_session_t *session, size_t image_bytes)
{
    const uint8_t *bytes = (const uint8_t *)session->image;
    const uint8_t *numbers;
    int code = wia_init(&session->wia, NULL, NULL);

    if (code == WIA_OK)
        code = wia_load(&session->wia, session->image, image_bytes);
    if (code != WIA_OK)
        return code;
    numbers = bytes + session->wia.offset_[WIA_SECTION_TARGET] + WIA_AT_TARGET_NUMBERS;
    session->machine = machine_of(thread, numbers, bytes + WIA_AT_HEADER_TARGET_DIGEST);
    if (session->machine == NULL)
        return WIA_E_MEMORY;
    code = wia_init(&session->wia, &session->machine->device.hal, NULL);
    if (code == WIA_OK)
        code = wia_load(&session->wia, session->image, image_bytes);
    if (code == WIA_OK)
        code = make_buffers(session);
    if (code == WIA_OK)
        code = make_layers(session);
    if (code == WIA_OK)
        make_cache(session);
    session->crc32 = wia_target_word(bytes + WIA_AT_HEADER_CRC32);
    return code;
}

wia_session_t *wia_tvm_session(wia_thread_t *thread, const void *image, size_t image_bytes, int *code,
                               wia_fault_t *fault)
{
    wia_session_t **link = &thread->sessions;
    wia_session_t *session;

    for (; *link != NULL; link = &(*link)->next)
        if ((*link)->image == image && image_bytes >= (*link)->wia.summary.image_bytes
            && wia_target_word((const uint8_t *)image + WIA_AT_HEADER_CRC32) == (*link)->crc32)
            return *link;
    session = (wia_session_t *)calloc(1u, sizeof *session);
    *code = WIA_E_MEMORY;
    if (session == NULL)
        return NULL;
    session->image = image;
    *code = open_session(thread, session, image_bytes);
    *fault = session->wia.fault;
    if (*code != WIA_OK) {
        free_session(session);
        return NULL;
    }
    *link = session;
    return session;
}
