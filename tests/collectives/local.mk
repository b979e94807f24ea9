# SPDX-License-Identifier: BSD-3-Clause
collectives_thread_tests = tests/collectives/test_collectives
RANK_TESTS += \
	$(collectives_thread_tests) \
	tests/collectives/test_coll_order \
	tests/collectives/test_flight \
	tests/collectives/test_mesh \
	tests/collectives/test_messages \
	tests/collectives/test_mismatch \
	tests/collectives/test_peer_failures \
	tests/collectives/test_plain \
	tests/collectives/test_staging
THREAD_TESTS += $(collectives_thread_tests:=.sh)
# Run by the scripts of the RANK_TESTS.
collectives_thread_programs = tests/collectives/test_half_sums
check_PROGRAMS += $(collectives_thread_programs)
THREAD_TESTS_NEED += $(collectives_thread_programs)
PROGRAM_TESTS += \
	tests/collectives/test_bootstrap \
	tests/collectives/test_links \
	tests/collectives/test_peers \
	tests/collectives/test_rendezvous
DEVICE_PROGRAM_TESTS += tests/collectives/test_tree_sum
DEVICE_SCRIPT_TESTS += tests/collectives/test_hierarchy.sh tests/collectives/test_kill.sh tests/collectives/test_ucx.sh
LONG_DEVICE_TESTS += tests/collectives/test_kill_long.sh
check_PROGRAMS += tests/collectives/test_ucx_nodes
SCRIPT_TESTS += \
	tests/collectives/test_nccl.sh \
	tests/collectives/test_control.sh \
	tests/collectives/test_nccl_linked.sh
# bench/scale.c needs UCX's headers.
SCRIPT_TESTS += tests/collectives/test_scale.sh
if HAVE_UCX
check_PROGRAMS += bench/scale
endif
# test_launchers.sh compiles test_launchers_mpi.c itself, with mpicc.
SCRIPT_TESTS += tests/collectives/test_launchers.sh
check_PROGRAMS += tests/collectives/test_launchers
tests_collectives_test_launchers_SOURCES = \
	tests/collectives/launched.h \
	tests/collectives/test_launchers.c
EXTRA_DIST += tests/collectives/test_launchers_mpi.c
# Run by both.
check_PROGRAMS += tests/collectives/test_control
check_PROGRAMS += tests/collectives/test_nccl_order tests/collectives/test_nccl_transport
tests_collectives_test_bootstrap_SOURCES = tests/collectives/test_bootstrap.c \
	tests/collectives/launcher_socket.h
tests_collectives_test_rendezvous_SOURCES = tests/collectives/test_rendezvous.c \
	tests/collectives/launcher_socket.h
CLUSTER_TESTS += tests/collectives/test_control.sh tests/collectives/test_launchers.sh
