# SPDX-License-Identifier: BSD-3-Clause
engine_thread_tests = tests/engine/test_engine
RANK_TESTS += \
	$(engine_thread_tests) \
	tests/engine/test_allocator \
	tests/engine/test_audit \
	tests/engine/test_cells \
	tests/engine/test_checkpoint \
	tests/engine/test_engine_errors \
	tests/engine/test_engine_plan \
	tests/engine/test_engine_types \
	tests/engine/test_flat \
	tests/engine/test_full_params \
	tests/engine/test_guide \
	tests/engine/test_hybrid \
	tests/engine/test_init \
	tests/engine/test_lifetimes \
	tests/engine/test_local_writes \
	tests/engine/test_modules \
	tests/engine/test_muon \
	tests/engine/test_offload \
	tests/engine/test_reshard \
	tests/engine/test_scaler \
	tests/engine/test_state8
THREAD_TESTS += $(engine_thread_tests:=.sh)
EVERY_DEVICE_TESTS += tests/engine/test_engine.sh tests/engine/test_offload.sh
ONE_DEVICE_TESTS += tests/engine/test_checkpoint_sharded.sh tests/engine/test_engine_errors.sh tests/engine/test_guide.sh
# Run by the scripts of the RANK_TESTS.
engine_thread_programs = tests/engine/test_engine_values
check_PROGRAMS += \
	$(engine_thread_programs) \
	tests/engine/test_checkpoint_files \
	tests/engine/test_engine_phases \
	tests/engine/test_engine_bytes \
	tests/engine/test_engine_checks \
	tests/engine/test_engine_ranks \
	tests/engine/test_engine_resume \
	tests/engine/test_engine_states \
	tests/engine/test_engine_streams \
	tests/engine/test_file \
	tests/engine/test_fork \
	tests/engine/test_hybrid_errors \
	tests/engine/test_modules_init \
	tests/engine/test_save_folder \
	tests/engine/test_scaler_engine \
	tests/engine/test_unit_buffers
THREAD_TESTS_NEED += $(engine_thread_programs)
PROGRAM_TESTS += \
	tests/engine/test_context \
	tests/engine/test_model_folder \
	tests/engine/test_null_arguments \
	tests/engine/test_safetensors \
	tests/engine/test_safetensors_header \
	tests/engine/test_shard \
	tests/engine/test_struct_older
DEVICE_PROGRAM_TESTS += tests/engine/test_optim tests/engine/test_optim8 tests/engine/test_thread_ranks
SCRIPT_TESTS += tests/engine/test_checkpoint_dcp.sh tests/engine/test_checkpoint_python.sh tests/engine/test_failing_calls.sh \
	tests/engine/test_missing_edges.sh tests/engine/test_orders.sh
LONG_TESTS += tests/engine/test_orders_long.sh
check_PROGRAMS += tests/engine/test_failing_calls
tests_engine_test_failing_calls_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc \
	-Wl,--wrap=aligned_alloc,--wrap=mmap,--wrap=memfd_create,--wrap=ftruncate,--wrap=fallocate \
	-Wl,--wrap=recvmsg,--wrap=sendmsg,--wrap=pread,--wrap=pwrite,--wrap=fsync,--wrap=rename \
	-Wl,--wrap=pthread_create,--wrap=open
SCRIPT_TESTS += tests/engine/test_refused.sh
check_PROGRAMS += tests/engine/test_refused
tests_engine_test_refused_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=sendmsg
# Ranks that are told that they are on several nodes.
tests_engine_test_cells_SOURCES = tests/engine/test_cells.c tests/harness/nodes.c
tests_engine_test_cells_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=srt_comm_create_world
tests_engine_test_hybrid_SOURCES = tests/engine/test_hybrid.c tests/harness/nodes.c
tests_engine_test_hybrid_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=srt_comm_create_world
tests_engine_test_muon_SOURCES = tests/engine/test_muon.c tests/harness/nodes.c
tests_engine_test_muon_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=srt_comm_create_world
tests_engine_test_reshard_SOURCES = tests/engine/test_reshard.c tests/harness/nodes.c
tests_engine_test_reshard_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=srt_comm_create_world
check_PROGRAMS += tests/engine/test_audit_values
SCRIPT_TESTS += tests/engine/test_faults.sh
LONG_DEVICE_TESTS += tests/engine/test_faults_long.sh
SCRIPT_TESTS += tests/engine/test_faults_hosts.sh
CLUSTER_TESTS += tests/engine/test_faults_hosts.sh
LONG_TESTS += tests/engine/test_faults_hosts_long.sh
EXTRA_DIST += tests/engine/fault_hosts.sh
check_PROGRAMS += tests/engine/fault_job tests/engine/fault_trials
tests_engine_fault_job_SOURCES = tests/engine/fault_job.c tests/engine/fault_point.c tests/engine/fault_point.h \
	tests/engine/fault_record.c tests/engine/fault_record.h
tests_engine_fault_job_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=recvmsg
tests_engine_fault_trials_SOURCES = tests/engine/fault_names.c tests/engine/fault_record.c tests/engine/fault_record.h \
	tests/engine/fault_trial.c tests/engine/fault_trial.h tests/engine/fault_trials.c
tests_engine_test_audit_SOURCES = tests/engine/planted.c tests/engine/planted.h tests/engine/test_audit.c
tests_engine_test_audit_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=srt_coll_start,--wrap=srt_event_record
tests_engine_test_audit_values_SOURCES = tests/engine/planted.c tests/engine/planted.h \
	tests/engine/test_audit_values.c
tests_engine_test_audit_values_LDFLAGS = $(tests_engine_test_audit_LDFLAGS)
check_PROGRAMS += tests/engine/test_missing_edges
tests_engine_test_missing_edges_SOURCES = tests/engine/edges.c tests/engine/edges.h \
	tests/engine/test_missing_edges.c
tests_engine_test_missing_edges_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=srt_stream_wait_event,--wrap=srt_event_record \
	-Wl,--wrap=srt_queue_put,--wrap=srt_stream_sync
libfixtures_a_SOURCES += tests/engine/engine_case.c tests/engine/engine_case.h tests/engine/file_case.c \
	tests/engine/file_case.h tests/engine/module_case.c tests/engine/module_case.h

# Sharded checkpoints need libraries; without them their scripts are skipped.
DEVICE_SCRIPT_TESTS += tests/engine/test_checkpoint_sharded.sh
if HAVE_CHECKPOINTS
check_PROGRAMS += tests/engine/test_checkpoint_damage tests/engine/test_checkpoint_entries \
	tests/engine/test_checkpoint_killed \
	tests/engine/test_checkpoint_reads tests/engine/test_checkpoint_sharded \
	tests/engine/test_checkpoint_values tests/engine/test_guide_resume
tests_engine_test_checkpoint_killed_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fsync,--wrap=rename,--wrap=renameat2 \
	-Wl,--wrap=mkdir,--wrap=rmdir,--wrap=unlink,--wrap=unlinkat,--wrap=fallocate,--wrap=write \
	-Wl,--wrap=pwrite,--wrap=open,--wrap=pread,--wrap=malloc
PROGRAM_TESTS += tests/engine/test_boxes tests/engine/test_file_calls tests/engine/test_manifest
tests_engine_test_file_calls_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fchmod,--wrap=fsync,--wrap=fallocate \
	-Wl,--wrap=fstatvfs,--wrap=flock,--wrap=renameat2
endif

# Calls with NULL of all functions of the public headers.
EXTRA_DIST += tests/engine/null_calls.awk
CLEANFILES += tests/engine/null_calls.h
tests/engine/null_calls.h: $(shardrtinclude_HEADERS) tests/engine/null_calls.awk
	$(AM_V_GEN)cd $(srcdir) && $(AWK) -f tests/engine/null_calls.awk $(shardrtinclude_HEADERS) \
		> $(abs_builddir)/$@.tmp
	$(AM_V_at)mv $@.tmp $@
tests/engine/test_null_arguments.$(OBJEXT): tests/engine/null_calls.h
