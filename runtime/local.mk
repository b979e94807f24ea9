# SPDX-License-Identifier: BSD-3-Clause
libshardrt_core_la_SOURCES += \
	runtime/safetensors.h \
	runtime/safetensors_read.c \
	runtime/safetensors_write.c
