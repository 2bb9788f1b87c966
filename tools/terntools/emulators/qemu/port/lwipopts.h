// lwIP as MicroPython's boards have it.
#include <stdint.h>
#define LWIP_IPV4 1
#define LWIP_IPV6 0
#define LWIP_NO_CTYPE_H 1
uint32_t random_word(void);
#define LWIP_RAND() random_word()
#include "extmod/lwip-include/lwipopts_common.h"
