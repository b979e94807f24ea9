# SPDX-License-Identifier: BSD-3-Clause
libshardrt_core_la_SOURCES += \
	collectives/algorithms/all_gather.c \
	collectives/algorithms/all_reduce.c \
	collectives/algorithms/barrier.c \
	collectives/algorithms/broadcast.c \
	collectives/algorithms/reduce_scatter.c \
	collectives/algorithms/send_recv.c \
	collectives/algorithms/steps.c \
	collectives/algorithms/table.c \
	collectives/algorithms/tree_sum.c \
	collectives/average.c \
	collectives/call_log.h \
	collectives/bootstrap/bootstrap.c \
	collectives/bootstrap/bootstrap.h \
	collectives/bootstrap/control_channel.c \
	collectives/bootstrap/control_channel.h \
	collectives/bootstrap/control_channel_internal.h \
	collectives/bootstrap/frame.c \
	collectives/bootstrap/internal.h \
	collectives/bootstrap/oob.c \
	collectives/bootstrap/progress.c \
	collectives/bootstrap/wire.c \
	collectives/bootstrap/wire.h \
	collectives/check.c \
	collectives/coll.c \
	collectives/collective.h \
	collectives/comm.c \
	collectives/comm.h \
	collectives/extents.c \
	collectives/groups.c \
	collectives/host_step.c \
	collectives/import_cache.c \
	collectives/mesh.c \
	collectives/mesh.h \
	collectives/messages.c \
	collectives/poison.c \
	collectives/shm/call_log.c \
	collectives/shm/control.c \
	collectives/shm/control.h \
	collectives/shm/flag_actions.c \
	collectives/shm/flags.c \
	collectives/shm/flags.h \
	collectives/shm/memory.c \
	collectives/shm/waits.c \
	collectives/start.c \
	collectives/start_order.c \
	collectives/transport.c \
	collectives/transports/mapped.c \
	collectives/transports/nccl/create.c \
	collectives/transports/nccl/group.c \
	collectives/transports/nccl/nccl.h \
	collectives/transports/nccl/order.c \
	collectives/transports/nccl/sum.c \
	collectives/transports/nccl/transport.c \
	collectives/transports/nccl/watchdog.c \
	collectives/transports/staged/bounce.c \
	collectives/transports/staged/bounce.h \
	collectives/transports/staged/transport.c \
	collectives/transports/ucx/ucx.h \
	collectives/wait.c \
	collectives/wait.h

if HAVE_UCX
libshardrt_core_la_SOURCES += \
	collectives/transports/ucx/drive.c \
	collectives/transports/ucx/endpoints.c \
	collectives/transports/ucx/internal.h \
	collectives/transports/ucx/library.c \
	collectives/transports/ucx/library.h \
	collectives/transports/ucx/messages.c \
	collectives/transports/ucx/order.c \
	collectives/transports/ucx/rounds.c \
	collectives/transports/ucx/slots.c \
	collectives/transports/ucx/transport.c \
	collectives/transports/ucx/worker.c
else
libshardrt_core_la_SOURCES += collectives/transports/ucx/absent.c
endif
