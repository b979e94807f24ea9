# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
	bench/backends.sh \
	bench/kernels \
	bench/memory.sh \
	bench/peer_checkpoint.py \
	bench/peer_kernels.py \
	bench/peer_startup.py \
	bench/peer_torch.py \
	bench/peer_torch_gpu.py \
	bench/peer_ucx.py \
	bench/quality.sh

# Built by name, e.g. `make bench/bench_coll`, not by default.
EXTRA_PROGRAMS = bench/bench_checkpoint bench/bench_coll bench/bench_kernels bench/bench_matmul bench/bench_startup \
	bench/bench_stream
CLEANFILES += $(EXTRA_PROGRAMS)
bench_bench_checkpoint_SOURCES = bench/bench_checkpoint.c
bench_bench_checkpoint_LDADD = $(SRT_LIB)
bench_bench_coll_SOURCES = bench/bench_coll.c
bench_bench_coll_LDADD = $(SRT_LIB)
bench_bench_kernels_SOURCES = bench/bench_kernels.c
bench_bench_kernels_LDADD = libfixtures.la $(SRT_CORE)
bench_bench_matmul_SOURCES = bench/bench_matmul.c
bench_bench_matmul_LDADD = $(SRT_CORE) -ldl
bench_bench_startup_SOURCES = bench/bench_startup.c
bench_bench_startup_LDADD = $(SRT_LIB)
bench_bench_stream_SOURCES = bench/bench_stream.c
bench_bench_stream_LDADD = $(SRT_CORE)
