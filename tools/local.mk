# SPDX-License-Identifier: BSD-3-Clause
noinst_LTLIBRARIES += libtools.la
libtools_la_SOURCES = \
	tools/common.c \
	tools/common.h
