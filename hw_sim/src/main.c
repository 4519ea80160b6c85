/* main.c: run one raw program without Python, for gdb, perf and sanitizers.
 *
 *     wia_sim --target NUMBERS [options] CODE [BUFFER ...]
 *
 * NUMBERS: the target's numbers in table order, separated by commas. CODE: file with the instructions. BUFFER, one
 * per binding: in:FILE (read-only) or out:BYTES[:FILE] (zeros at first, written to FILE at the end).
 * Options: --mode full|functional|counts, --fill zero|ones|noise, --seed N, --kernel auto|portable|avx2|avx512,
 * --limit CYCLES, --trace BYTES. Exit code: 0, 1 for a fault of the program, 2 for a bad command line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wia/gen/wia_target.h"
#include "wia_sim.h"

enum { MAX_BUFFERS = 256, EXIT_FAULT = 1, EXIT_USAGE = 2 };

typedef struct {
    wia_sim_desc_t desc;
    uint8_t target[WIA_TARGET_BYTES];
    uint8_t *code;
    size_t code_bytes;
    wia_sim_buffer_t buffers[MAX_BUFFERS];
    const char *save[MAX_BUFFERS];
    size_t buffer_count;
} options_t;

static const char *const modes[] = {"full", "functional", "counts", NULL};
static const char *const fills[] = {"zero", "ones", "noise", NULL};
static const char *const kernels[] = {"auto", "portable", "avx2", "avx512", NULL};

static int fail(const char *what, const char *value)
{
    fprintf(stderr, "wia_sim: %s: %s\n", what, value);
    return EXIT_USAGE;
}

/* A file in memory of its own; NULL if it cannot be read. */
static uint8_t *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long size;

    if (file == NULL)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        *bytes = (size_t)size;
        data = malloc(*bytes + 1u); /* never of size 0 */
        if (data != NULL && fread(data, 1, *bytes, file) != *bytes) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

static int parse_target(options_t *options, const char *text)
{
    size_t at;
    char *end;

    for (at = 0; at < WIA_TARGET_BYTES; at += 4u, text = end + (*end == ',')) {
        unsigned long number = strtoul(text, &end, 10);

        if (end == text || number > UINT32_MAX)
            return fail("bad target number", text);
        options->target[at] = (uint8_t)number;
        options->target[at + 1u] = (uint8_t)(number >> 8);
        options->target[at + 2u] = (uint8_t)(number >> 16);
        options->target[at + 3u] = (uint8_t)(number >> 24);
    }
    options->desc.target = options->target;
    return 0;
}

static int parse_choice(const char *const *names, const char *name, int *out)
{
    for (*out = 0; names[*out] != NULL; (*out)++)
        if (strcmp(names[*out], name) == 0)
            return 0;
    return fail("unknown choice", name);
}

static int parse_option(options_t *options, const char *option, const char *value)
{
    if (strcmp(option, "--target") == 0)
        return parse_target(options, value);
    if (strcmp(option, "--mode") == 0)
        return parse_choice(modes, value, &options->desc.mode);
    if (strcmp(option, "--fill") == 0)
        return parse_choice(fills, value, &options->desc.fill);
    if (strcmp(option, "--kernel") == 0)
        return parse_choice(kernels, value, &options->desc.kernel);
    if (strcmp(option, "--seed") == 0)
        options->desc.noise_seed = strtoull(value, NULL, 10);
    else if (strcmp(option, "--limit") == 0)
        options->desc.work_limit_cycles = strtoull(value, NULL, 10);
    else if (strcmp(option, "--trace") == 0)
        options->desc.trace_bytes = (size_t)strtoull(value, NULL, 10);
    else
        return fail("unknown option", option);
    return 0;
}

static int parse_buffer(options_t *options, const char *text)
{
    wia_sim_buffer_t *buffer = &options->buffers[options->buffer_count];
    char *end;

    if (options->buffer_count == MAX_BUFFERS)
        return fail("too many buffers", text);
    if (strncmp(text, "in:", 3) == 0) {
        buffer->data = read_file(text + 3, &buffer->bytes);
    } else if (strncmp(text, "out:", 4) == 0) {
        buffer->bytes = (size_t)strtoull(text + 4, &end, 10);
        buffer->data = calloc(buffer->bytes + 1u, 1u);
        buffer->writable = 1;
        options->save[options->buffer_count] = *end == ':' ? end + 1 : NULL;
    } else {
        return fail("a buffer is in:FILE or out:BYTES[:FILE]", text);
    }
    if (buffer->data == NULL)
        return fail("cannot read or allocate buffer", text);
    options->buffer_count++;
    return 0;
}

static int parse(options_t *options, int argc, char **argv)
{
    int i, bad = 0;

    for (i = 1; i < argc && bad == 0; i++) {
        if (strncmp(argv[i], "--", 2) == 0)
            bad = parse_option(options, argv[i], i + 1 < argc ? argv[i + 1] : ""), i++;
        else if (options->code == NULL)
            bad = (options->code = read_file(argv[i], &options->code_bytes)) == NULL ? fail("cannot read", argv[i]) : 0;
        else
            bad = parse_buffer(options, argv[i]);
    }
    if (bad == 0 && (options->code == NULL || options->desc.target == NULL))
        return fail("usage", "wia_sim --target NUMBERS [options] CODE [in:FILE | out:BYTES[:FILE] ...]");
    return bad;
}

static void print(const wia_sim_stats_t *stats)
{
    static const char *const units[] = {"dma_in", "array", "post", "dma_out", "dispatch", "decoder", "fetch"};
    unsigned unit;

    printf("fault %d at %" PRIu32 ": %s\n", stats->fault, stats->fault_offset, wia_sim_fault_text(stats->fault));
    printf("cycles %" PRIu64 " macs %" PRIu64 " instructions %" PRIu64 " kernel %s\n", stats->total.cycles,
           stats->total.macs, stats->total.instructions, stats->kernel);
    for (unit = 0; unit < WIA_SIM_UNITS; unit++)
        printf("busy %s %" PRIu64 "\n", units[unit], stats->total.busy[unit]);
}

static int save(const options_t *options)
{
    size_t i;

    for (i = 0; i < options->buffer_count; i++)
        if (options->save[i] != NULL) {
            FILE *file = fopen(options->save[i], "wb");
            int bad = file == NULL ||
                      fwrite(options->buffers[i].data, 1, options->buffers[i].bytes, file) != options->buffers[i].bytes;

            if ((file != NULL && fclose(file) != 0) || bad)
                return fail("cannot write", options->save[i]);
        }
    return 0;
}

static int run(options_t *options)
{
    size_t bytes = wia_sim_size(&options->desc);
    wia_sim_t *sim = bytes != 0u ? malloc(bytes) : NULL;
    wia_sim_program_t program = {.code = options->code, .code_bytes = options->code_bytes,
                                 .buffers = options->buffers, .buffer_count = options->buffer_count};
    wia_sim_stats_t stats;
    int fault;

    if (sim == NULL || wia_sim_init(sim, bytes, &options->desc) != WIA_SIM_OK) {
        free(sim);
        return fail("cannot make a machine", "check the target's numbers and the kernel");
    }
    wia_sim_load(sim, &program);
    fault = wia_sim_run(sim);
    wia_sim_stats(sim, &stats);
    free(sim);
    print(&stats);
    if (options->desc.trace != NULL)
        fputs(options->desc.trace, stdout);
    return fault == WIA_SIM_OK ? save(options) : EXIT_FAULT;
}

int main(int argc, char **argv)
{
    options_t options;
    size_t i;
    int result;

    memset(&options, 0, sizeof options);
    result = parse(&options, argc, argv);
    if (result == 0 && options.desc.trace_bytes != 0u)
        options.desc.trace = malloc(options.desc.trace_bytes);
    if (result == 0)
        result = run(&options);
    for (i = 0; i < options.buffer_count; i++)
        free(options.buffers[i].data);
    free(options.code);
    free(options.desc.trace);
    return result;
}
