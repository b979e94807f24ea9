# SPDX-License-Identifier: BSD-3-Clause
libshardrt_core_la_SOURCES += \
	device/backend.h \
	device/backend_registry.c \
	device/buffer.c \
	device/device.c \
	device/device.h \
	device/enumerate.c \
	device/event.c \
	device/failure.c \
	device/host_services.c \
	device/native.c \
	device/probe.c \
	device/stream.c \
	device/stream_queue.c \
	device/stream_queue.h \
	device/submit.c \
	device/upload.c

# Only this library needs the module folder's path.
noinst_LTLIBRARIES += libmodule.la
libmodule_la_SOURCES = device/module.c
libmodule_la_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_PKGLIBDIR='"$(pkglibdir)"' \
	-DSRT_LIBDIR_NAME='"$(srt_libdir_name)"'
libshardrt_core_la_LIBADD += libmodule.la
