/* replay.c: main for fuzz targets built without libFuzzer: runs every file named on the command line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data;
    long size;

    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    data = malloc(size > 0 ? (size_t)size : 1u); /* exactly the input, so that sanitizers see every overrun */
    if (data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size)
        return 1;
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int i, bad = 0;

    for (i = 1; i < argc; i++)
        bad |= replay(argv[i]);
    printf("%d inputs\n", argc - 1);
    return bad;
}
