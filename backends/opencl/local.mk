# SPDX-License-Identifier: BSD-3-Clause
if HAVE_OPENCL
pkglib_LTLIBRARIES += shardrt_backend_opencl.la
endif
shardrt_backend_opencl_la_SOURCES = \
	backends/opencl/backend.c
shardrt_backend_opencl_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
shardrt_backend_opencl_la_LDFLAGS = $(SRT_MODULE_LDFLAGS)
shardrt_backend_opencl_la_LIBADD = libkernels_table.la $(SRT_OPENCL_LIBS)
