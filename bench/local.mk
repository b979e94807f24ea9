# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += bench/peer_torch.py bench/quality.sh

# Built by `make bench/bench_coll`, not by default.
EXTRA_PROGRAMS = bench/bench_coll
bench_bench_coll_SOURCES = bench/bench_coll.c
bench_bench_coll_LDADD = $(SRT_LIB)
CLEANFILES += bench/bench_coll
