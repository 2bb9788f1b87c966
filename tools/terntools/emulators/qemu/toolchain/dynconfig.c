// The options of the core, for Debian's compiler and binutils of the LX106, which load them from the shared library that
// XTENSA_GNU_CONFIG names: so that they make code for a windowed core. core-isa.h and xtensa-modules.c.inc are QEMU's.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ansidecl.h"
#include "core-isa.h"

#define XTHAL_ABI_WINDOWED 0
#define XTHAL_ABI_CALL0 1
#define XSHAL_ABI XTHAL_ABI_WINDOWED
#define XSHAL_USE_ABSOLUTE_LITERALS 0
#define XSHAL_HAVE_TEXT_SECTION_LITERALS 1
// The core is older than these.
#define XCHAL_HAVE_MMU XCHAL_HAVE_PTP_MMU
#define XCHAL_HAVE_FP_DIV 0
#define XCHAL_HAVE_FP_RECIP 0
#define XCHAL_HAVE_FP_SQRT 0
#define XCHAL_HAVE_FP_RSQRT 0
#define XTENSA_CONFIG_DEFINITION
#include "xtensa-dynconfig.h"
XTENSA_CONFIG_INSTANCE_LIST;

// GCC 13 asks for a license that goes with its own, as MIT's does, and for the options as macros.
int plugin_is_GPL_compatible;
#undef XTENSA_CONFIG_ENTRY
#define TEXT(value) #value
#define MACRO(name, value) "__" name "=" TEXT(value)
#define XTENSA_CONFIG_ENTRY(option) MACRO(#option, option)
const char *const xtensa_config_strings[] = {XTENSA_CONFIG_ENTRY_LIST, NULL};

#include "xtensa-modules.c.inc"
