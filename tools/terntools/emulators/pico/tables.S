// The fixed addresses of the boot ROM (datasheet 2.8.3): vectors, then where its tables are. Addresses in them are
// 16 bits wide, which C cannot say.

.syntax unified

.section .vectors, "a"
.word 0x20041f00        // stack until the firmware sets its own
.word rom_reset
.word rom_hang          // NMI
.word rom_hang          // hard fault
.byte 'M', 'u', 1, 3    // magic; version 3, as on a Pico of today
.hword functions
.hword data
.hword rom_lookup + 1

.macro function first, second, name
.byte \first, \second
.hword \name + 1        // Thumb
.endm

.macro table first, second, name
.byte \first, \second
.hword \name
.endm

.section .rodata.tables, "a"
.align 2
functions:
function 'P', '3', rom_popcount
function 'R', '3', rom_reverse
function 'L', '3', rom_clz
function 'T', '3', rom_ctz
function 'M', 'S', rom_memset
function 'S', '4', rom_memset
function 'M', 'C', rom_memcpy
function 'C', '4', rom_memcpy
function 'I', 'F', rom_flash_nothing    // connect the flash
function 'E', 'X', rom_flash_nothing    // leave execute-in-place
function 'R', 'E', rom_flash_erase
function 'R', 'P', rom_flash_program
function 'F', 'C', rom_flash_nothing    // flush the cache
function 'C', 'X', rom_flash_nothing    // enter execute-in-place
function 'U', 'B', rom_usb_boot
function 'W', 'V', rom_missing          // core 1 waits for its vector
.hword 0, 0

data:
table 'S', 'F', rom_float_table
table 'S', 'D', rom_double_table
.hword 0, 0

// The datasheet's table of floating-point functions, offsets 0x00 to 0x7c, for single and for double precision.
// MicroPython's firmware brings its own square root and trigonometry: what nobody calls is missing.
.macro missing count
.rept \count
.word rom_missing
.endr
.endm

.align 2
rom_float_table:
.word __aeabi_fadd, __aeabi_fsub, __aeabi_fmul, __aeabi_fdiv
missing 3
.word __aeabi_f2iz
missing 1
.word __aeabi_f2uiz
missing 1
.word __aeabi_i2f
missing 1
.word __aeabi_ui2f
missing 9
.word __aeabi_l2f
missing 1
.word __aeabi_ul2f
missing 1
.word __aeabi_f2lz
missing 1
.word __aeabi_f2ulz, rom_float_to_ufix64, __aeabi_f2d

rom_double_table:
.word __aeabi_dadd, __aeabi_dsub, __aeabi_dmul, __aeabi_ddiv
missing 3
.word __aeabi_d2iz
missing 1
.word __aeabi_d2uiz
missing 1
.word __aeabi_i2d
missing 1
.word __aeabi_ui2d
missing 9
.word __aeabi_l2d
missing 1
.word __aeabi_ul2d
missing 1
.word __aeabi_d2lz
missing 1
.word __aeabi_d2ulz
missing 1
.word __aeabi_d2f
