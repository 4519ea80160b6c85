/* error.c: error code -> text, from the generated table. */
#include "wia_internal.h"

#define WIA_ERROR_CASE(name, code, text) \
    case code: \
        return #name ": " text;

const char *wia_error_text(int code)
{
    if (code > 0)
        return "WIA_BUSY: the device is still at work";
    switch (code) {
        WIA_ERROR_LIST(WIA_ERROR_CASE)
    default:
        return "unknown error code";
    }
}
