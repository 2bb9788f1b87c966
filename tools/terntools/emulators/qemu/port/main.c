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
#include "modflash.h"
#include "nic.h"

static uint32_t heap[HEAP_SIZE / sizeof(uint32_t)];

static int prompt(void) {
    return pyexec_mode_kind == PYEXEC_MODE_RAW_REPL ? pyexec_raw_repl() : pyexec_friendly_repl();
}

// boot.py; main.py, unless the prompt is a raw one; the prompt. A soft reset ends it.
static void run(void) {
    int ended = pyexec_file_if_exists("boot.py");
    if (ended && !(ended & PYEXEC_FORCED_EXIT) && pyexec_mode_kind == PYEXEC_MODE_FRIENDLY_REPL) {
        ended = pyexec_file_if_exists("main.py");
    }
    while (!(ended & PYEXEC_FORCED_EXIT)) {
        ended = prompt();
    }
}

int main(void) {
    qemu_init();
    board_init();
    flash_init();
    nic_init();
    mp_cstack_init_with_sp_here(STACK_SIZE);
    gc_init(heap, heap + MP_ARRAY_SIZE(heap));
    for (;;) {
        mp_init();
        mp_obj_list_append(mp_sys_path, MP_OBJ_NEW_QSTR(MP_QSTR__slash_lib));
        readline_init0();
        pyexec_frozen_module("_boot.py", false);
        run();
        mp_printf(&mp_plat_print, "MPY: soft reboot\n");
        gc_sweep_all(); // closes sockets
        nic_soft_reset();
        mp_deinit();
    }
}

#if defined(__xtensa__)
void spill_windows(int calls); // xtensa/setjmp.S
#define SAVE_AREA 16 // bytes below a frame, where four registers of its caller are

void gc_collect(void) {
    char *bottom = (char *)__builtin_frame_address(0) - SAVE_AREA;
    gc_collect_start();
    spill_windows(8);
    gc_collect_root((void **)bottom, (MP_STATE_THREAD(stack_top) - bottom) / sizeof(void *));
    gc_collect_end();
}
#else
void gc_collect(void) {
    gc_collect_start();
    gc_helper_collect_regs_and_stack();
    gc_collect_end();
}
#endif

void nlr_jump_fail(void *value) {
    mp_printf(&mp_plat_print, "crash: an exception that nobody catches\n");
    qemu_exit(70);
}

void qemu_crash(uint32_t cause, uint32_t at, uint32_t address, uint32_t caller) {
    mp_printf(&mp_plat_print, "\ncrash: exception %x at %08x, address %08x, called from %08x\n", cause, at, address, caller);
    qemu_exit(70);
}
