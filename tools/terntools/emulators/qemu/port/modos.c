// What the module `os` has of this port, by extmod/modos.c, which includes this file.
#include "py/runtime.h"
#include "ports/tern/board.h"

#if MICROPY_VERSION_MINOR < 28 // from then on it is MicroPython's, of mp_hal_get_random()
static mp_obj_t mp_os_urandom(mp_obj_t number) {
    vstr_t bytes;
    vstr_init_len(&bytes, mp_obj_get_int(number));
    random_bytes(bytes.buf, bytes.len);
    return mp_obj_new_bytes_from_vstr(&bytes);
}
static MP_DEFINE_CONST_FUN_OBJ_1(mp_os_urandom_obj, mp_os_urandom);
#endif
