# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
	bench/backends.sh \
	bench/kernels \
	bench/memory.sh \
	bench/peer_checkpoint.py \
	bench/peer_collectives.py \
	bench/peer_kernels.py \
	bench/peer_llama_cpp.py \
	bench/peer_load.py \
	bench/peer_lora.py \
	bench/peer_mpi.c \
	bench/peer_oneccl.cc \
	bench/peer_startup.py \
	bench/peer_tokenizer.py \
	bench/peer_torch.py \
	bench/peer_torch_gpu.py \
	bench/peer_ucx.py \
	bench/peers.py \
	bench/plot_scale.py \
	bench/quality.sh

# Built by name, e.g. `make bench/bench_coll`, not by default.
EXTRA_PROGRAMS = bench/bench_checkpoint bench/bench_coll bench/bench_few_rows bench/bench_kernels bench/bench_matmul \
	bench/bench_startup bench/bench_stream
if HAVE_CUDA
EXTRA_PROGRAMS += bench/bench_cuda
endif
CLEANFILES += $(EXTRA_PROGRAMS)
bench_bench_checkpoint_SOURCES = bench/bench_checkpoint.c
bench_bench_checkpoint_LDADD = $(SRT_LIB)
bench_bench_coll_SOURCES = bench/bench_coll.c bench/coll_rules.h
bench_bench_coll_LDADD = $(SRT_LIB)
bench_bench_cuda_SOURCES = bench/bench_cuda.c bench/cuda_calls.h
bench_bench_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
bench_bench_cuda_LDADD = -ldl
bench_bench_few_rows_SOURCES = bench/bench_few_rows.c
bench_bench_few_rows_LDADD = $(SRT_CORE)
bench_bench_kernels_SOURCES = bench/bench_kernels.c
bench_bench_kernels_LDADD = libfixtures.a $(SRT_CORE)
bench_bench_matmul_SOURCES = bench/bench_matmul.c
bench_bench_matmul_LDADD = $(SRT_CORE) -ldl
bench_bench_startup_SOURCES = bench/bench_startup.c
bench_bench_startup_LDADD = $(SRT_LIB)
bench_bench_stream_SOURCES = bench/bench_stream.c
bench_bench_stream_LDADD = $(SRT_CORE)

bench/bench_%: private AM_LDFLAGS += -Wl,-rpath,'$$ORIGIN/../.libs'

# Run by tests/tools/test_load_memory_long.sh too.
bench_bench_load_SOURCES = bench/bench_load.c
bench_bench_load_LDADD = libshardrt-models.la $(SRT_LIB)

# Run by tests/collectives/test_scale.sh too.
if HAVE_UCX
bench_scale_SOURCES = bench/scale.c bench/scale_links.c bench/scale_nodes.c bench/scale_rank.c bench/scale.h
bench_scale_LDADD = libmodels.la $(SRT_CORE)
bench_scale_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=srt_comm_create_world -Wl,--wrap=srt_comm_oob_allgather_for \
	-Wl,--wrap=srt_comm_status_consensus -Wl,--wrap=srt_control_send -Wl,--wrap=srt_control_recv \
	-Wl,--wrap=srt_device_available -Wl,--wrap=srt_flight_begin \
	-Wl,--wrap=srt_coll_start -Wl,--wrap=srt_coll_start_stage
endif
