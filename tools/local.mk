# SPDX-License-Identifier: BSD-3-Clause
noinst_LTLIBRARIES += libtools.la
libtools_la_SOURCES = \
	tools/common.c \
	tools/common.h

# The launcher needs nothing of the library but its headers: it works whatever the library does.
bin_PROGRAMS += shardrun
shardrun_SOURCES = \
	tools/shardrun.c \
	tools/launch_child.c \
	tools/launch_child.h \
	tools/launch_options.c \
	tools/launch_options.h \
	tools/launch_output.c \
	tools/launch_output.h \
	tools/rendezvous.c \
	tools/rendezvous.h
shardrun_LDADD = # not the tests' default

bin_PROGRAMS += shardrt-info
shardrt_info_SOURCES = \
	tools/info.c \
	tools/info.h \
	tools/info_backends.c \
	tools/info_config.c \
	tools/info_plan.c \
	tools/info_topology.c
shardrt_info_LDADD = libmodels.la libtools.la $(SRT_LIB) $(SRT_PKG_LIBS)

bin_PROGRAMS += shardrt-train
shardrt_train_SOURCES = \
	tools/shardrt-train.c \
	tools/train.h \
	tools/train_options.c \
	tools/train_options.h \
	tools/train_report.c \
	tools/train_setup.c \
	tools/train_steps.c
shardrt_train_LDADD = libtools.la libmodels.la $(SRT_LIB) -lm

# Run from the sources: packs a build for a machine with a GPU, and runs there.
EXTRA_DIST += tools/gpu-check tools/gpu_check_machine.py tools/gpu_check_pack.py tools/gpu_check_plan.py
