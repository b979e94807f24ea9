# SPDX-License-Identifier: BSD-3-Clause
#
# The tuned matrix product is compiled per instruction set, like kernels/local.mk.
libshardrt_core_la_SOURCES += \
	backends/backend.h \
	backends/buffer.c \
	backends/core.h \
	backends/device.c \
	backends/launch.c \
	backends/registry.c \
	backends/stream.c \
	backends/cpu/backend.c \
	backends/cpu/cpu.h \
	backends/cpu/device.c \
	backends/cpu/event.c \
	backends/cpu/fpenv.h \
	backends/cpu/limits.c \
	backends/cpu/memory.c \
	backends/cpu/pool.c \
	backends/cpu/pool.h \
	backends/cpu/stream.c \
	backends/cpu/topology.c \
	backends/cpu/work.c
