/* stats.c: counters of the calling thread as JSON, and the packed functions that hand them out. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "wia_tvm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* TVM's own, when its runtime is in the process and visible to us. */
__attribute__((weak)) int TVMFuncGetGlobal(const char *name, void **function);
__attribute__((weak)) int TVMFuncCall(void *function, tvm_value_t *args, int *type_codes, int num_args,
                                      tvm_value_t *ret_value, int *ret_type_code);

#ifdef __cplusplus
}
#endif

/* Names in the order of the simulator's enumerations; as in byoc_accel/sim_result.py. */
static const char *const unit_names[WIA_SIM_UNITS] = {"dma_in",   "array",   "post", "dma_out",
                                                      "dispatch", "decoder", "fetch"};
static const char *const reason_names[WIA_SIM_REASONS] = {
    "token:dma_in", "token:array", "token:post", "token:dma_out", "idle", "weights", "order",
    "parameters",   "fetch",       "queue",      "decoder",       "fifo", "drain"};
static const char *const stream_names[WIA_SIM_STREAMS] = {
    "fetched",   "consumed", "array_read",    "post_read",     "post_write",
    "dma_write", "dma_read", "external_read", "external_write"};

/* A text that grows; `bytes` stays NULL after memory ran out. */
typedef struct {
    char *bytes;
    size_t used;
    size_t size;
    bool failed;
} text_t;

__attribute__((format(printf, 2, 3))) static void add(text_t *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(NULL, 0u, format, arguments);
    va_end(arguments);
    if (text->failed || length < 0)
        return;
    if (text->used + (size_t)length + 1u > text->size) {
        size_t size = 2u * (text->used + (size_t)length + 1u);
        char *bytes = (char *)realloc(text->bytes, size);

        if (bytes == NULL) {
            text->failed = true;
            return;
        }
        text->bytes = bytes;
        text->size = size;
    }
    va_start(arguments, format);
    vsnprintf(text->bytes + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    text->used += (size_t)length;
}

/* A JSON string; bytes above 127 are the name's own UTF-8. */
static void add_name(text_t *text, const char *name)
{
    add(text, "\"");
    for (; *name != '\0'; name++) {
        if (*name == '"' || *name == '\\')
            add(text, "\\%c", *name);
        else if ((unsigned char)*name < 0x20u)
            add(text, "\\u%04x", (unsigned)(unsigned char)*name);
        else
            add(text, "%c", *name);
    }
    add(text, "\"");
}

static void add_numbers(text_t *text, const char *const *names, const uint64_t *numbers, size_t count, bool zeros)
{
    const char *comma = "";
    size_t i;

    for (i = 0u; i < count; i++)
        if (numbers[i] != 0u || zeros) {
            add(text, "%s\"%s\": %llu", comma, names[i], (unsigned long long)numbers[i]);
            comma = ", ";
        }
}

static void add_counters(text_t *text, const wia_sim_counters_t *c)
{
    size_t i;

    add(text, "\"cycles\": %llu, \"macs\": %llu, \"skipped_macs\": %llu, \"slots\": %llu, \"tiles\": %llu, ",
        (unsigned long long)c->cycles, (unsigned long long)c->macs, (unsigned long long)c->skipped_macs,
        (unsigned long long)c->slots, (unsigned long long)c->tiles);
    add(text, "\"zero_tiles\": %llu, \"instructions\": %llu, \"bytes\": {", (unsigned long long)c->zero_tiles,
        (unsigned long long)c->instructions);
    add_numbers(text, stream_names, c->bytes, WIA_SIM_STREAMS, true);
    add(text, "}, \"units\": {");
    for (i = 0u; i < WIA_SIM_UNITS; i++) {
        add(text, "%s\"%s\": {\"busy\": %llu, \"stalls\": {", i == 0u ? "" : ", ", unit_names[i],
            (unsigned long long)c->busy[i]);
        add_numbers(text, reason_names, c->stall[i], WIA_SIM_REASONS, false);
        add(text, "}}");
    }
    add(text, "}");
}

static void add_layers(text_t *text, const wia_session_t *session)
{
    const wia_t *wia = &session->wia;
    const uint8_t *record = wia->image_ + wia->offset_[WIA_SECTION_LAYERS];
    const char *strings = (const char *)(wia->image_ + wia->offset_[WIA_SECTION_STRINGS]);
    uint32_t i;

    for (i = 0u; i < wia->summary.layers; i++, record += WIA_SIZE_LAYER) {
        add(text, "%s{\"name\": ", i == 0u ? "" : ", ");
        add_name(text, strings + wia_target_word(record + WIA_AT_LAYER_NAME));
        add(text, ", \"kind\": ");
        add_name(text, strings + wia_target_word(record + WIA_AT_LAYER_KIND));
        add(text, ", ");
        add_counters(text, &session->layers[i]);
        add(text, "}");
    }
}

/* {"runs", "cycles", "regions": [{"name", "crc32", "runs", counters, "layers": [...]}]} */
static void add_thread(text_t *text, const wia_thread_t *thread)
{
    const wia_session_t *session;
    uint64_t runs = 0u;
    uint64_t cycles = 0u;

    for (session = thread->sessions; session != NULL; session = session->next) {
        runs += session->runs;
        cycles += session->total.cycles;
    }
    add(text, "{\"runs\": %llu, \"cycles\": %llu, \"regions\": [", (unsigned long long)runs,
        (unsigned long long)cycles);
    for (session = thread->sessions; session != NULL; session = session->next) {
        add(text, "%s{\"name\": ", session == thread->sessions ? "" : ", ");
        add_name(text, session->wia.summary.name);
        add(text, ", \"crc32\": %lu, \"runs\": %llu, ", (unsigned long)session->crc32,
            (unsigned long long)session->runs);
        add_counters(text, &session->total);
        add(text, ", \"layers\": [");
        add_layers(text, session);
        add(text, "]}");
    }
    add(text, "]}");
}

/* A packed C function may not return a plain string; TVM makes one of its String objects of it. Without TVM's
 * help the result is a pointer to the text, which lives until the thread's next call. */
static void return_text(const char *bytes, tvm_value_t *ret_value, int *ret_type_code)
{
    void *function = NULL;
    tvm_value_t argument;
    int type_code = TVM_STRING;

    argument.string = bytes;
    if (TVMFuncGetGlobal != NULL && TVMFuncCall != NULL && TVMFuncGetGlobal("runtime.String", &function) == 0
        && function != NULL && TVMFuncCall(function, &argument, &type_code, 1, ret_value, ret_type_code) == 0)
        return;
    ret_value->string = bytes;
    *ret_type_code = TVM_OPAQUE_HANDLE;
}

__attribute__((visibility("default"))) int wia_tvm_stats(void *args, int *type_codes, int num_args, void *ret_value,
                                                         int *ret_type_code, void *resource)
{
    wia_thread_t *thread = wia_tvm_thread();
    text_t text = {NULL, 0u, 0u, false};

    (void)args;
    (void)type_codes;
    (void)num_args;
    (void)resource;
    if (thread == NULL)
        return -1;
    add_thread(&text, thread);
    if (text.failed) {
        free(text.bytes);
        return -1;
    }
    free(thread->text);
    thread->text = text.bytes;
    return_text(text.bytes, (tvm_value_t *)ret_value, ret_type_code);
    return 0;
}

__attribute__((visibility("default"))) int wia_tvm_reset_stats(void *args, int *type_codes, int num_args,
                                                               void *ret_value, int *ret_type_code, void *resource)
{
    wia_thread_t *thread = wia_tvm_thread();
    wia_session_t *session;

    (void)args;
    (void)type_codes;
    (void)num_args;
    (void)ret_value;
    (void)resource;
    if (thread == NULL)
        return -1;
    for (session = thread->sessions; session != NULL; session = session->next) {
        session->runs = 0u;
        memset(&session->total, 0, sizeof session->total);
        memset(session->layers, 0, session->wia.summary.layers * sizeof *session->layers);
    }
    if (ret_type_code != NULL)
        *ret_type_code = TVM_NULL;
    return 0;
}
