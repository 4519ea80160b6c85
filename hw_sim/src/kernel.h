/* kernel.h: the inner loops of the array, in several versions that give equal bytes. */
#ifndef WIA_SIM_KERNEL_H
#define WIA_SIM_KERNEL_H

#include <stdint.h>

#include "wia/gen/wia_isa.h"

enum {
    WIA_KERNEL_LANES = 32,   /* largest array.rows and array.columns */
    WIA_KERNEL_COLUMNS = 32,
    WIA_KERNEL_TILE_COLUMNS = 16,
    WIA_KERNEL_WORDS = 32,   /* bytes after the words in use that kernels may read */
    WIA_KERNEL_SLACK = 64    /* bytes after the SRAM that kernels may read (never use) */
};

/* One pass of one weight tile over all positions. Sums wrap at int32. */
typedef struct {
    const int8_t *ifm;      /* lane 0 of position (0, 0) */
    const int8_t *weights;  /* lanes x columns */
    const uint32_t *taps;   /* dwc: byte offset of each lane from ifm */
    int32_t *acc;           /* entry of position (0, 0) */
    uint32_t acc_stride;    /* int32 per entry: a multiple of 16, not less than columns */
    uint32_t lanes;
    uint32_t columns;
    uint32_t width;
    uint32_t height;
    uint32_t x_step;        /* bytes */
    uint32_t y_step;
    int accumulate;         /* 0: start from zero. Columns not in use keep their value */
} wia_pass_t;

/* All positions of one post, one after the other: each reads all of its operands before it writes. */
typedef struct {
    const int32_t *acc;     /* entry of position (0, 0); NULL: the maximum of a window of `a` instead */
    uint32_t acc_stride;
    const int8_t *a;        /* operands and result at position (0, 0) */
    const int8_t *r;        /* residual; NULL: none */
    int8_t *out;
    uint32_t columns;
    const wia_pgeo_t *geo;
    const wia_par_t *par;
    const int32_t *bias;    /* by column */
    const int64_t *multiplier;
    const uint32_t *shift;
    const wia_addp_t *addp; /* if there is a residual */
    const int8_t *table;    /* NULL: none */
} wia_post_pass_t;

struct wia_lanes;

typedef struct {
    const char *name;
    void (*conv)(const wia_pass_t *pass); /* every lane feeds every column */
    void (*dwc)(const wia_pass_t *pass);  /* column c uses byte c of every tap */
    void (*post)(const wia_post_pass_t *pass);
    /* Codec lanes: decode a row in the lanes from `first` on into a value for every column; the 16-bit words that it
     * took, or WIA_LANES_NOT_YET. The source holds 2 * columns + WIA_KERNEL_WORDS bytes at least. NULL: none. */
    uint32_t (*lanes_row)(struct wia_lanes *lanes, uint32_t first, int8_t *values);
    /* The same for all rows of a tile of WIA_KERNEL_TILE_COLUMNS columns at most and two rows a cycle: its groups, with
     * the words of each, words[0] added to. live_rows: row 0 in bit 31. 2 * columns bytes a row. */
    uint32_t (*lanes_tile)(struct wia_lanes *lanes, uint32_t rows, uint32_t live_rows, int8_t *values, uint16_t *words);
    /* The same without values. */
    uint32_t (*lanes_words)(struct wia_lanes *lanes, uint32_t rows, uint32_t live_rows, uint16_t *words);
} wia_kernel_t;

extern const wia_kernel_t wia_kernel_portable;
#if defined(__x86_64__) || defined(__i386__)
extern const wia_kernel_t wia_kernel_avx2;
extern const wia_kernel_t wia_kernel_avx512;
#endif

#ifdef WIA_SIM_SMALL /* without lanes_words_avx2.c */
#define WIA_LANES_WORDS_AVX2 NULL
#else
#define WIA_LANES_WORDS_AVX2 wia_lanes_words_avx2
#endif

/* The versions of post. */
void wia_post_portable(const wia_post_pass_t *pass);
#if defined(__x86_64__) || defined(__i386__)
void wia_post_avx2(const wia_post_pass_t *pass);
#endif

/* Kernel of a WIA_SIM_KERNEL_* choice; NULL if this processor cannot run it or there is no such choice. */
const wia_kernel_t *wia_kernel_choose(int choice);

#endif
