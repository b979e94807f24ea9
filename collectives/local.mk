# SPDX-License-Identifier: BSD-3-Clause
libshardrt_core_la_SOURCES += \
	collectives/average.c \
	collectives/bootstrap.c \
	collectives/bootstrap.h \
	collectives/bootstrap_internal.h \
	collectives/bootstrap_wire.h \
	collectives/check.c \
	collectives/coll.c \
	collectives/collective.h \
	collectives/comm.c \
	collectives/comm.h \
	collectives/exchange.c \
	collectives/messages.c \
	collectives/peers.c \
	collectives/peers.h \
	collectives/peers_internal.h \
	collectives/poison.c \
	collectives/progress.c \
	collectives/registry.c \
	collectives/shm/all_gather.c \
	collectives/shm/all_reduce.c \
	collectives/shm/barrier.c \
	collectives/shm/broadcast.c \
	collectives/shm/control.c \
	collectives/shm/control.h \
	collectives/shm/memory.c \
	collectives/shm/messages.c \
	collectives/shm/reduce.c \
	collectives/shm/reduce_scatter.c \
	collectives/shm/staged.c \
	collectives/shm/staging.c \
	collectives/shm/staging.h \
	collectives/shm/steps.c \
	collectives/shm/words.c \
	collectives/shm/zero_copy.c \
	collectives/start.c \
	collectives/transport.c \
	collectives/vendor/create.c \
	collectives/vendor/exchange.c \
	collectives/vendor/order.c \
	collectives/vendor/sum.c \
	collectives/vendor/vendor.h \
	collectives/vendor/watch.c

# Part of the CUDA module: see backends/cuda/local.mk.
if HAVE_NCCL
noinst_LTLIBRARIES += libnccl_comm.la
CUDA_NCCL = libnccl_comm.la
endif
libnccl_comm_la_SOURCES = \
	collectives/nccl/comm.c \
	collectives/nccl/library.c \
	collectives/nccl/library.h
libnccl_comm_la_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_NCCL_CFLAGS) $(SRT_CUDA_CFLAGS)
