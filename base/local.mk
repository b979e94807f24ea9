# SPDX-License-Identifier: BSD-3-Clause
libshardrt_core_la_SOURCES += \
	base/base.h \
	base/bytes.h \
	base/cgroup.h \
	base/clock.c \
	base/clock.h \
	base/config.c \
	base/cores.c \
	base/dtype.c \
	base/file_calls.c \
	base/file_calls.h \
	base/fpenv.h \
	base/hash.c \
	base/hash128.c \
	base/hash128.h \
	base/json.c \
	base/json.h \
	base/log.c \
	base/memfd.h \
	base/names.c \
	base/names.h \
	base/projection.c \
	base/projection.h \
	base/replacement.c \
	base/replacement.h \
	base/status.c \
	base/struct.c \
	base/util.c \
	base/version.c
