// What lwIP asks of a compiler and has no default for.
#include <stdint.h>
typedef uint32_t sys_prot_t;
#define LWIP_PLATFORM_DIAG(x)
#define LWIP_PLATFORM_ASSERT(x)
