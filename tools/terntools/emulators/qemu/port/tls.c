// What Mbed TLS wants of a board: the time, and entropy.
#include "py/mphal.h"
#include "py/runtime.h"
#include "board.h"

#if MICROPY_PY_SSL

#include "mbedtls/mbedtls_config_port.h"
#include "mbedtls/platform_time.h"
#include "mbedtls/platform_util.h"
#include "shared/timeutils/timeutils.h"

#if MICROPY_VERSION_MINOR < 28 // from then on it is MicroPython's, of mp_hal_get_random()
int mbedtls_hardware_poll(void *data, unsigned char *output, size_t n, size_t *n_out) {
    random_bytes(output, n);
    *n_out = n;
    return 0;
}
#endif

time_t tls_seconds(time_t *to) {
    time_t now = mp_hal_time_ns() / 1000000000;
    if (to) {
        *to = now;
    }
    return now;
}

mbedtls_ms_time_t mbedtls_ms_time(void) {
    return mp_hal_time_ns() / 1000000;
}

struct tm *mbedtls_platform_gmtime_r(const mbedtls_time_t *seconds, struct tm *to) {
    timeutils_struct_time_t tm;
    timeutils_seconds_since_epoch_to_struct_time(*seconds, &tm);
    *to = (struct tm) {
        .tm_year = tm.tm_year - 1900, .tm_mon = tm.tm_mon - 1, .tm_mday = tm.tm_mday,
        .tm_hour = tm.tm_hour, .tm_min = tm.tm_min, .tm_sec = tm.tm_sec,
    };
    return to;
}

#endif
