// What the module `time` has of this port, by extmod/modtime.c, which includes this file.
#include "py/mphal.h"
#include "shared/timeutils/timeutils.h"

#if MICROPY_VERSION_MINOR < 27
static mp_obj_t mp_time_localtime_get(void) {
    timeutils_struct_time_t tm;
    timeutils_seconds_since_epoch_to_struct_time(mp_hal_time_ns() / 1000000000, &tm);
    int fields[] = {tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_wday, tm.tm_yday};
    mp_obj_t objects[MP_ARRAY_SIZE(fields)];
    for (size_t i = 0; i < MP_ARRAY_SIZE(fields); i++) {
        objects[i] = MP_OBJ_NEW_SMALL_INT(fields[i]);
    }
    return mp_obj_new_tuple(MP_ARRAY_SIZE(fields), objects);
}
#else
static void mp_time_localtime_get(timeutils_struct_time_t *tm) {
    timeutils_seconds_since_epoch_to_struct_time(mp_hal_time_ns() / 1000000000, tm);
}
#endif

static mp_obj_t mp_time_time_get(void) {
    return mp_obj_new_int_from_ull(mp_hal_time_ns() / 1000000000);
}
