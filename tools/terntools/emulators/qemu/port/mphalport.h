#include <stddef.h>
#include <stdint.h>
#include "shared/runtime/interrupt_char.h"

// Nothing of MicroPython runs in an interrupt.
#define MICROPY_BEGIN_ATOMIC_SECTION() (0)
#define MICROPY_END_ATOMIC_SECTION(state) ((void)(state))

void mp_hal_get_random(size_t n, uint8_t *to);
