MOD = native_sampler
SRC = sampler.c
ARCH = armv6m
include $(MPY_DIR)/py/dynruntime.mk
CFLAGS += -O2
