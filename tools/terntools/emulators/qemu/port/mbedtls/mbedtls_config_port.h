// Mbed TLS as MicroPython's boards have it, with the clock and the entropy of this port (tls.c).
#include <time.h>
time_t tls_seconds(time_t *to);
#define MBEDTLS_PLATFORM_TIME_MACRO tls_seconds
#define MBEDTLS_PLATFORM_MS_TIME_ALT
#define MBEDTLS_PLATFORM_GMTIME_R_ALT
#define MICROPY_MBEDTLS_CONFIG_BARE_METAL (1)
#include "extmod/mbedtls/mbedtls_config_common.h"
