// MicroPython for machines of QEMU, as much like a board as tern needs: heap, flash with LittleFS, console, clock, and for
// the ESP32's instruction sets a network. Heap, flash and features are of the size that boards have.
#include <alloca.h>
#include <stdint.h>

#define MICROPY_CONFIG_ROM_LEVEL (MICROPY_CONFIG_ROM_LEVEL_EXTRA_FEATURES)

#if defined(__xtensa__)
#define MICROPY_EMIT_XTENSAWIN (1)
#define MICROPY_NLR_SETJMP (1) // as on the ESP32: native code expects it
#define MACHINE_TICK_NS 100
#elif defined(__riscv)
#define MICROPY_EMIT_RV32 (1)
#define MICROPY_EMIT_INLINE_RV32 (1)
#define MACHINE_TICK_NS 100
#else
#define MICROPY_EMIT_THUMB (1)
#define MICROPY_EMIT_INLINE_THUMB (1)
#define MICROPY_MAKE_POINTER_CALLABLE(p) ((void *)((mp_uint_t)(p) | 1))
#define MACHINE_TICK_NS 50
#endif

#define MICROPY_OPT_COMPUTED_GOTO (1)
#define MICROPY_ALLOC_PATH_MAX (128)
#define MICROPY_PERSISTENT_CODE_LOAD (1)
#define MICROPY_READER_VFS (1)
#define MICROPY_ENABLE_GC (1)
#define MICROPY_STACK_CHECK_MARGIN (1024)
#define MICROPY_ENABLE_EMERGENCY_EXCEPTION_BUF (1)
#define MICROPY_LONGINT_IMPL (MICROPY_LONGINT_IMPL_MPZ)
#define MICROPY_FLOAT_IMPL (MICROPY_FLOAT_IMPL_FLOAT)
#define MICROPY_SCHEDULER_DEPTH (8)
#define MICROPY_USE_INTERNAL_ERRNO (1)
#define MICROPY_USE_INTERNAL_PRINTF (1)
#define MICROPY_EPOCH_IS_1970 (1)
#define MICROPY_TRACKED_ALLOC (1) // Mbed TLS takes its memory from the heap
#define MICROPY_VFS (1)
#define MICROPY_PY_OS_INCLUDEFILE "ports/tern/modos.c"
#define MICROPY_PY_OS_SYNC (1)
#define MICROPY_PY_OS_UNAME (1)
#define MICROPY_PY_OS_URANDOM (1)
#define MICROPY_PY_TIME_GMTIME_LOCALTIME_MKTIME (1)
#define MICROPY_PY_TIME_TIME_TIME_NS (1)
#define MICROPY_PY_TIME_INCLUDEFILE "ports/tern/modtime.c"
uint32_t random_word(void);
#define MICROPY_PY_RANDOM_SEED_INIT_FUNC (random_word())
#define MICROPY_PY_MACHINE (1)
#define MICROPY_PY_MACHINE_INCLUDEFILE "ports/tern/modmachine.c"
#define MICROPY_PY_MACHINE_RESET (1)

#define MP_SSIZE_MAX (0x7fffffff)
typedef intptr_t mp_int_t;
typedef uintptr_t mp_uint_t;
typedef long mp_off_t;
#define MP_NEED_LOG2 (1)
#define MP_STATE_PORT MP_STATE_VM

// MicroPython looks for input every few bytecodes, and wherever it waits.
void poll_input(void);
void wait_for_input(int timeout_ms);
#define MICROPY_VM_HOOK_COUNT (256)
#define MICROPY_VM_HOOK_INIT static unsigned int vm_hook_left = MICROPY_VM_HOOK_COUNT;
#define MICROPY_VM_HOOK_POLL \
    if (--vm_hook_left == 0) { \
        vm_hook_left = MICROPY_VM_HOOK_COUNT; \
        poll_input(); \
    }
#define MICROPY_VM_HOOK_LOOP MICROPY_VM_HOOK_POLL
#define MICROPY_VM_HOOK_RETURN MICROPY_VM_HOOK_POLL
#define MICROPY_INTERNAL_WFE(timeout_ms) wait_for_input(timeout_ms)
#define MICROPY_INTERNAL_EVENT_HOOK poll_input()
