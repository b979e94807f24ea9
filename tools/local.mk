# SPDX-License-Identifier: BSD-3-Clause
noinst_LTLIBRARIES += libtools.la
libtools_la_SOURCES = \
	tools/common.c \
	tools/common.h

# The launcher needs nothing of the library but its headers: it works whatever the library does.
bin_PROGRAMS += shardrun
shardrun_SOURCES = \
	tools/shardrun/shardrun.c \
	tools/shardrun/child.c \
	tools/shardrun/child.h \
	tools/shardrun/options.c \
	tools/shardrun/options.h \
	tools/shardrun/output.c \
	tools/shardrun/output.h \
	collectives/bootstrap/rendezvous.c \
	collectives/bootstrap/rendezvous.h
shardrun_LDADD = # not the tests' default

# The others find the library in the tree that they are installed in.
SRT_TOOL_RPATH = -Wl,-rpath,'$$ORIGIN/../$(srt_libdir_name)'

bin_PROGRAMS += shardrt-info
shardrt_info_SOURCES = \
	tools/info/info.c \
	tools/info/info.h \
	tools/info/backends.c \
	tools/info/config.c \
	tools/info/plan.c \
	tools/info/topology.c
shardrt_info_LDFLAGS = $(AM_LDFLAGS) $(SRT_TOOL_RPATH)
shardrt_info_LDADD = libmodels.la libtools.la $(SRT_LIB) $(SRT_PKG_LIBS)

bin_PROGRAMS += shardrt-train
shardrt_train_SOURCES = \
	tools/train/train.c \
	tools/train/train.h \
	tools/train/options.c \
	tools/train/options.h \
	tools/train/report.c \
	tools/train/setup.c \
	tools/train/steps.c
shardrt_train_LDFLAGS = $(AM_LDFLAGS) $(SRT_TOOL_RPATH)
shardrt_train_LDADD = libtools.la libmodels.la $(SRT_LIB) -lm

# Run from the sources: packs a build for a machine with a GPU, and runs there.
EXTRA_DIST += tools/gpu-check/gpu-check tools/gpu-check/gpu_check_machine.py tools/gpu-check/gpu_check_pack.py tools/gpu-check/gpu_check_plan.py
