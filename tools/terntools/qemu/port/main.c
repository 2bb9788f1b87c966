// Start, the prompt again and again, and the roots of garbage collection.
#include "py/builtin.h"
#include "py/compile.h"
#include "py/cstack.h"
#include "py/gc.h"
#include "py/mphal.h"
#include "py/runtime.h"
#include "shared/readline/readline.h"
#include "shared/runtime/gchelper.h"
#include "shared/runtime/pyexec.h"
#include "machine.h"
#include "board.h"

static uint32_t heap[HEAP_SIZE / sizeof(uint32_t)];

int main(void) {
    qemu_init();
    board_init();
    mp_cstack_init_with_sp_here(STACK_SIZE);
    gc_init(heap, heap + MP_ARRAY_SIZE(heap));
    for (;;) {
        mp_init();
        mp_obj_list_append(mp_sys_path, MP_OBJ_NEW_QSTR(MP_QSTR__slash_lib));
        readline_init0();
        pyexec_frozen_module("_boot.py", false);
        int ended = pyexec_file_if_exists("boot.py");
        if (!(ended & PYEXEC_FORCED_EXIT) && pyexec_mode_kind == PYEXEC_MODE_FRIENDLY_REPL && ended != 0) {
            ended = pyexec_file_if_exists("main.py");
        }
        while (!(ended & PYEXEC_FORCED_EXIT)) {
            ended = pyexec_mode_kind == PYEXEC_MODE_RAW_REPL ? pyexec_raw_repl() : pyexec_friendly_repl();
        }
        mp_printf(&mp_plat_print, "MPY: soft reboot\n");
        gc_sweep_all(); // closes sockets
        nic_soft_reset();
        mp_deinit();
    }
}

#if defined(__xtensa__)
// Calls that nest deep enough leave all registers of the window file on the stack.
static void __attribute__((noinline)) collect_nested(volatile unsigned int level) {
    if (level < 64 / 8) {
        collect_nested(level + 1);
    } else {
        volatile uint32_t here;
        uint32_t sp = (uint32_t)&here & ~3;
        gc_collect_root((void **)sp, ((mp_uint_t)MP_STATE_THREAD(stack_top) - sp) / sizeof(uint32_t));
    }
}
#endif

void gc_collect(void) {
    gc_collect_start();
    #if defined(__xtensa__)
    collect_nested(0);
    #else
    gc_helper_collect_regs_and_stack();
    #endif
    gc_collect_end();
}

void nlr_jump_fail(void *value) {
    mp_printf(&mp_plat_print, "crash: an exception that nobody catches\n");
    qemu_exit(70);
}

void qemu_crash(uint32_t cause, uint32_t at, uint32_t address, uint32_t caller) {
    mp_printf(&mp_plat_print, "\ncrash: exception %x at %08x, address %08x, called from %08x\n", cause, at, address, caller);
    qemu_exit(70);
}
