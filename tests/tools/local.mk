# SPDX-License-Identifier: BSD-3-Clause
tools_thread_tests = tests/tools/test_train_streams.sh
# Trainings that compare results of code that other tests run, too: a sanitizer need not see them again.
RESULT_DEVICE_TESTS = \
	tests/tools/test_hash_decoders.sh \
	tests/tools/test_hash_matrix.sh \
	tests/tools/test_lora.sh \
	tests/tools/test_sequence_parallel.sh \
	tests/tools/test_tensor_parts.sh \
	tests/tools/test_train_mesh.sh \
	tests/tools/test_train_muon.sh \
	tests/tools/test_train_optim8.sh \
	tests/tools/test_train_precision.sh \
	tests/tools/test_world_sizes.sh
RESULT_TESTS += \
	tests/tools/test_readme.sh \
	tests/tools/test_strategies.sh \
	tests/tools/test_train_launchers.sh \
	tests/tools/test_train_restarts.sh
DEVICE_SCRIPT_TESTS += \
	$(RESULT_DEVICE_TESTS) \
	$(tools_thread_tests) \
	tests/tools/test_ckpt.sh \
	tests/tools/test_generate.sh \
	tests/tools/test_train_cli.sh \
	tests/tools/test_train_hf.sh \
	tests/tools/test_train_init.sh \
	tests/tools/test_train_options.sh \
	tests/tools/test_train_resume.sh \
	tests/tools/test_train_sft.sh
THREAD_TESTS += $(tools_thread_tests)
EVERY_DEVICE_TESTS += tests/tools/test_hash_matrix.sh tests/tools/test_train_streams.sh
ONE_DEVICE_TESTS += tests/tools/test_ckpt.sh tests/tools/test_generate.sh tests/tools/test_train_cli.sh tests/tools/test_train_hf.sh \
	tests/tools/test_train_init.sh \
	tests/tools/test_sequence_parallel.sh \
	tests/tools/test_train_mesh.sh tests/tools/test_train_options.sh tests/tools/test_train_precision.sh \
	tests/tools/test_train_sft.sh tests/tools/test_world_sizes.sh
SCRIPT_TESTS += \
	tests/tools/test_ckpt_sharded.sh \
	tests/tools/test_gguf.sh \
	tests/tools/test_gpu_check.sh \
	tests/tools/test_info.sh \
	tests/tools/test_install.sh \
	tests/tools/test_man.sh \
	tests/tools/test_shardrun.sh \
	tests/tools/test_shardrun_hosts.sh \
	tests/tools/test_shardrun_restarts.sh \
	tests/tools/test_tokens.sh \
	tests/tools/test_train_damage.sh \
	tests/tools/test_train_faults.sh \
	tests/tools/test_train_hosts.sh
CLUSTER_TESTS += tests/tools/test_shardrun_hosts.sh tests/tools/test_train_hosts.sh \
	tests/tools/test_train_launchers.sh
LONG_TESTS += tests/tools/test_aarch64_long.sh tests/tools/test_gpu_check_long.sh tests/tools/test_load_memory_long.sh \
	tests/tools/test_memory_limit_long.sh tests/tools/test_smollm2_long.sh tests/tools/test_strategies_long.sh \
	tests/tools/test_train_damage_long.sh \
	tests/tools/test_train_launchers_long.sh
LONG_DEVICE_TESTS += tests/tools/test_hash_matrix_long.sh tests/tools/test_tensor_parts_long.sh \
	tests/tools/test_train_restarts_long.sh
PROGRAM_TESTS += tests/tools/test_restart_delay
tests_tools_test_restart_delay_SOURCES = tests/tools/test_restart_delay.c tools/shardrun/restart.c
check_PROGRAMS += bench/bench_load
# Run by the script of the same name.
check_PROGRAMS += tests/tools/test_gguf tests/tools/test_strategies
tests_tools_test_gguf_SOURCES = tests/tools/gguf_file.c tests/tools/gguf_file.h tests/tools/test_gguf.c
EXTRA_DIST += tests/tools/decoders/gemma3.json tests/tools/decoders/llama.json tests/tools/decoders/llama_parts.json \
	tests/tools/decoders/olmo2.json tests/tools/decoders/olmo2_parts.json tests/tools/decoders/qwen3.json \
	tests/tools/decoders/qwen3_parts.json tests/tools/decoders/olmo2_rows.json \
	tests/tools/decoders/qwen3_rows.json \
	tests/tools/embedding.cc tests/tools/gguf_readers.py tests/tools/hash_matrix.def tests/tools/hash_pairs.def \
	tests/tools/readme.sed
