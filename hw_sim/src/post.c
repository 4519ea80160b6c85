/* post.c: the arithmetic of the post unit in portable C. */
#include <stddef.h>
#include <string.h>

#include "fixed.h"
#include "kernel.h"

enum { COLUMNS = WIA_KERNEL_COLUMNS };

/* Maximum of the window at `a`, per channel. */
static void maximum(const wia_pgeo_t *geo, const int8_t *a, uint32_t columns, int32_t v[COLUMNS])
{
    int8_t best[COLUMNS];
    uint32_t x, y, column;

    memcpy(best, a, columns);
    for (y = 0; y < geo->window_y; y++)
        for (x = 0; x < geo->window_x; x++) {
            const int8_t *from = a + (size_t)y * geo->window_y_stride + (size_t)x * geo->window_x_stride;

            for (column = 0; column < columns; column++)
                best[column] = from[column] > best[column] ? from[column] : best[column];
        }
    for (column = 0; column < columns; column++)
        v[column] = best[column];
}

/* Bias, requantize, zero point, clamp. The switch is outside of the loops: one of them per rounding. */
static void scale(const wia_post_pass_t *pass, int32_t v[COLUMNS])
{
    const wia_par_t *par = pass->par;
    uint32_t column, columns = pass->columns;

#define WIA_SCALE_LOOP(rounded)                                                                              \
    for (column = 0; column < columns; column++)                                                             \
        v[column] = wia_fixed_clamp(rounded(wia_fixed_wrap((int64_t)v[column] + pass->bias[column]),          \
                                            pass->multiplier[column], pass->shift[column]) + par->zero_point, \
                                    par->clamp_low, par->clamp_high)
    switch (par->rounding) {
    case WIA_ROUNDING_UPWARD: WIA_SCALE_LOOP(wia_fixed_upward); break;
    case WIA_ROUNDING_NEAREST: WIA_SCALE_LOOP(wia_fixed_nearest); break;
    case WIA_ROUNDING_TRUNCATE: WIA_SCALE_LOOP(wia_fixed_truncate); break;
    default: WIA_SCALE_LOOP(wia_fixed_double); break;
    }
#undef WIA_SCALE_LOOP
}

static void add_residual(const wia_addp_t *addp, const int8_t *r, uint32_t columns, int32_t v[COLUMNS])
{
    int32_t factor = (int32_t)1 << addp->left_shift;
    uint32_t column;

    for (column = 0; column < columns; column++) {
        int64_t a = wia_fixed_requantize((v[column] - addp->zero_point_a) * factor, addp->multiplier_a, addp->shift_a,
                                         addp->rounding);
        int64_t b = wia_fixed_requantize((r[column] - addp->zero_point_b) * factor, addp->multiplier_b, addp->shift_b,
                                         addp->rounding);
        int64_t sum = wia_fixed_requantize(wia_fixed_wrap(a + b), addp->multiplier_out, addp->shift_out,
                                           addp->rounding);

        v[column] = wia_fixed_clamp(sum + addp->zero_point_out, addp->clamp_low, addp->clamp_high);
    }
}

static void position(const wia_post_pass_t *pass, const int8_t *a, const int8_t *r, const int32_t *acc, int8_t *out)
{
    uint32_t column, columns = pass->columns;
    int32_t v[COLUMNS];

    if (acc == NULL)
        maximum(pass->geo, a, columns, v);
    else
        memcpy(v, acc, columns * sizeof *acc);
    scale(pass, v);
    if (pass->r != NULL)
        add_residual(pass->addp, r, columns, v);
    for (column = 0; column < columns; column++)
        out[column] = pass->table != NULL ? pass->table[v[column] + 128] : (int8_t)v[column];
}

void wia_post_portable(const wia_post_pass_t *pass)
{
    const wia_pgeo_t *geo = pass->geo;
    /* Operands that are not used stay where they are: their steps may lead anywhere. */
    size_t a_x_step = pass->acc == NULL ? geo->a_x_step : 0u, a_y_step = pass->acc == NULL ? geo->a_y_step : 0u;
    size_t r_x_step = pass->r != NULL ? geo->r_x_step : 0u, r_y_step = pass->r != NULL ? geo->r_y_step : 0u;
    const int8_t *r = pass->r != NULL ? pass->r : pass->a;
    const int32_t *acc = pass->acc;
    size_t x, y;

    for (y = 0; y < geo->height; y++)
        for (x = 0; x < geo->width; x++) {
            position(pass, pass->a + y * a_y_step + x * a_x_step, r + y * r_y_step + x * r_x_step, acc,
                     pass->out + y * geo->out_y_step + x * geo->out_x_step);
            if (acc != NULL)
                acc += pass->acc_stride;
        }
}
