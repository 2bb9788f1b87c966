// The module `flash`: Flash(), a block device in memory beside the heap, as NOR flash: erased a block at a time, and a write
// only clears bits. Its content is that of the file `flash`.
#include <string.h>
#include "py/mphal.h"
#include "py/runtime.h"
#include "extmod/vfs.h"
#include "machine.h"
#include "board.h"
#include "modflash.h"

#define BLOCK 4096
#define INVALID MP_OBJ_NEW_SMALL_INT(-22) // EINVAL

static uint8_t memory[FLASH_BLOCKS * BLOCK] __attribute__((section(".noinit")));
static int file;

static void keep(size_t at, size_t n) {
    board_require(qemu_seek(file, at) >= 0 && qemu_write(file, memory + at, n) == (int)n, "place for the flash");
}

void flash_init(void) {
    file = qemu_open("flash", true);
    board_require(file >= 0, "flash");
    memset(memory, 0xff, sizeof memory);
    if (qemu_read(file, memory, sizeof memory) < (int)sizeof memory) { // a new one
        keep(0, sizeof memory);
    }
}

void flash_close(void) {
    qemu_close(file);
}

static bool is_block(mp_int_t block) {
    return 0 <= block && block < FLASH_BLOCKS;
}

static void erase(size_t at) {
    memset(memory + at, 0xff, BLOCK);
    keep(at, BLOCK);
}

typedef struct { mp_obj_base_t base; } flash_t;
static const mp_obj_type_t flash_type;
static const flash_t flash_object = {{&flash_type}};

static mp_obj_t flash_make_new(const mp_obj_type_t *type, size_t n_args, size_t n_kw, const mp_obj_t *args) {
    return MP_OBJ_FROM_PTR(&flash_object);
}

// (self, block, buffer[, offset]): without an offset a write erases first, as MicroPython's simple interface has it.
static mp_obj_t transfer(size_t n_args, const mp_obj_t *args, bool write) {
    mp_buffer_info_t buffer;
    mp_get_buffer_raise(args[2], &buffer, write ? MP_BUFFER_READ : MP_BUFFER_WRITE);
    mp_int_t block = mp_obj_get_int(args[1]), offset = n_args == 4 ? mp_obj_get_int(args[3]) : 0;
    if (!is_block(block) || offset < 0 || offset >= BLOCK || buffer.len > sizeof memory - block * BLOCK - offset) {
        return INVALID;
    }
    size_t at = block * BLOCK + offset;
    if (!write) {
        memcpy(buffer.buf, memory + at, buffer.len);
        return mp_const_none;
    }
    if (n_args == 3) {
        for (size_t i = 0; i < buffer.len; i += BLOCK) {
            erase(at + i);
        }
    }
    for (size_t i = 0; i < buffer.len; i++) {
        memory[at + i] &= ((uint8_t *)buffer.buf)[i];
    }
    keep(at, buffer.len);
    return mp_const_none;
}

static mp_obj_t flash_readblocks(size_t n_args, const mp_obj_t *args) {
    return transfer(n_args, args, false);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(flash_readblocks_obj, 3, 4, flash_readblocks);

static mp_obj_t flash_writeblocks(size_t n_args, const mp_obj_t *args) {
    return transfer(n_args, args, true);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(flash_writeblocks_obj, 3, 4, flash_writeblocks);

static mp_obj_t flash_ioctl(mp_obj_t self, mp_obj_t command, mp_obj_t argument) {
    switch (mp_obj_get_int(command)) {
        case MP_BLOCKDEV_IOCTL_BLOCK_COUNT:
            return MP_OBJ_NEW_SMALL_INT(FLASH_BLOCKS);
        case MP_BLOCKDEV_IOCTL_BLOCK_SIZE:
            return MP_OBJ_NEW_SMALL_INT(BLOCK);
        case MP_BLOCKDEV_IOCTL_BLOCK_ERASE:
            if (!is_block(mp_obj_get_int(argument))) {
                return INVALID;
            }
            erase(mp_obj_get_int(argument) * BLOCK);
            return MP_OBJ_NEW_SMALL_INT(0);
        default:
            return MP_OBJ_NEW_SMALL_INT(0);
    }
}
static MP_DEFINE_CONST_FUN_OBJ_3(flash_ioctl_obj, flash_ioctl);

static const mp_rom_map_elem_t flash_locals_table[] = {
    { MP_ROM_QSTR(MP_QSTR_readblocks), MP_ROM_PTR(&flash_readblocks_obj) },
    { MP_ROM_QSTR(MP_QSTR_writeblocks), MP_ROM_PTR(&flash_writeblocks_obj) },
    { MP_ROM_QSTR(MP_QSTR_ioctl), MP_ROM_PTR(&flash_ioctl_obj) },
};
static MP_DEFINE_CONST_DICT(flash_locals, flash_locals_table);
static MP_DEFINE_CONST_OBJ_TYPE(flash_type, MP_QSTR_Flash, MP_TYPE_FLAG_NONE,
    make_new, flash_make_new, locals_dict, &flash_locals);

static const mp_rom_map_elem_t globals_table[] = {
    { MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_flash) },
    { MP_ROM_QSTR(MP_QSTR_Flash), MP_ROM_PTR(&flash_type) },
};
static MP_DEFINE_CONST_DICT(globals, globals_table);
const mp_obj_module_t flash_module = { .base = { &mp_type_module }, .globals = (mp_obj_dict_t *)&globals };
MP_REGISTER_MODULE(MP_QSTR_flash, flash_module);
