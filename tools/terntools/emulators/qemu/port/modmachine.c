// The module `machine`, by extmod/modmachine.c, which includes this file: reset, identity, and pins that remember their level.
#include "ports/tern/board.h"
#include "ports/tern/modflash.h"

enum { POWER_ON = 1, HARD_RESET = 2 };

static void mp_machine_idle(void) {
    mp_event_handle_nowait();
}

static void mp_machine_reset(void) {
    flash_close();
    board_reset();
}

static mp_int_t mp_machine_reset_cause(void) {
    return board_was_reset() ? HARD_RESET : POWER_ON;
}

static mp_obj_t board_unique_id(void) {
    return mp_obj_new_bytes(board_id, sizeof board_id);
}
static MP_DEFINE_CONST_FUN_OBJ_0(board_unique_id_obj, board_unique_id);

#define PINS 49 // of an ESP32-S3
typedef struct {
    mp_obj_base_t base;
    uint8_t number;
} pin_t;
static bool levels[PINS];
extern const mp_obj_type_t pin_type;

static mp_obj_t pin_level(const pin_t *pin, size_t n_args, const mp_obj_t *args) {
    if (n_args == 0) {
        return MP_OBJ_NEW_SMALL_INT(levels[pin->number]);
    }
    levels[pin->number] = mp_obj_is_true(args[0]);
    return mp_const_none;
}

// Pin(number, mode=IN, pull=None, value=None)
static mp_obj_t pin_make_new(const mp_obj_type_t *type, size_t n_args, size_t n_kw, const mp_obj_t *all_args) {
    static const mp_arg_t allowed[] = {
        { MP_QSTR_, MP_ARG_REQUIRED | MP_ARG_INT },
        { MP_QSTR_mode, MP_ARG_INT, {.u_int = 1} },
        { MP_QSTR_pull, MP_ARG_OBJ, {.u_rom_obj = MP_ROM_NONE} },
        { MP_QSTR_value, MP_ARG_KW_ONLY | MP_ARG_OBJ, {.u_rom_obj = MP_ROM_NONE} },
    };
    mp_arg_val_t args[MP_ARRAY_SIZE(allowed)];
    mp_arg_parse_all_kw_array(n_args, n_kw, all_args, MP_ARRAY_SIZE(allowed), allowed, args);
    if (args[0].u_int < 0 || args[0].u_int >= PINS) {
        mp_raise_ValueError(MP_ERROR_TEXT("invalid pin"));
    }
    pin_t *pin = mp_obj_malloc(pin_t, type);
    pin->number = args[0].u_int;
    if (args[3].u_obj != mp_const_none) {
        pin_level(pin, 1, &args[3].u_obj);
    }
    return MP_OBJ_FROM_PTR(pin);
}

static mp_obj_t pin_call(mp_obj_t self, size_t n_args, size_t n_kw, const mp_obj_t *args) {
    mp_arg_check_num(n_args, n_kw, 0, 1, false);
    return pin_level(MP_OBJ_TO_PTR(self), n_args, args);
}

static mp_obj_t pin_value(size_t n_args, const mp_obj_t *args) {
    return pin_level(MP_OBJ_TO_PTR(args[0]), n_args - 1, args + 1);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(pin_value_obj, 1, 2, pin_value);

static const mp_rom_map_elem_t pin_locals_table[] = {
    { MP_ROM_QSTR(MP_QSTR_value), MP_ROM_PTR(&pin_value_obj) },
    { MP_ROM_QSTR(MP_QSTR_IN), MP_ROM_INT(1) },
    { MP_ROM_QSTR(MP_QSTR_OUT), MP_ROM_INT(3) },
};
static MP_DEFINE_CONST_DICT(pin_locals, pin_locals_table);
MP_DEFINE_CONST_OBJ_TYPE(pin_type, MP_QSTR_Pin, MP_TYPE_FLAG_NONE,
    make_new, pin_make_new, call, pin_call, locals_dict, &pin_locals);

#define MICROPY_PY_MACHINE_EXTRA_GLOBALS \
    { MP_ROM_QSTR(MP_QSTR_unique_id), MP_ROM_PTR(&board_unique_id_obj) }, \
    { MP_ROM_QSTR(MP_QSTR_Pin), MP_ROM_PTR(&pin_type) }, \
    { MP_ROM_QSTR(MP_QSTR_PWRON_RESET), MP_ROM_INT(POWER_ON) }, \
    { MP_ROM_QSTR(MP_QSTR_HARD_RESET), MP_ROM_INT(HARD_RESET) },
