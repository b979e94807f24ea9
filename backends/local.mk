# SPDX-License-Identifier: BSD-3-Clause
#
# The tuned matrix product is compiled per instruction set, like kernels/local.mk.
libshardrt_core_la_SOURCES += \
	backends/backend.h \
	backends/core.h
