/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading a folder of Hugging Face into the shards of zero3, without optimizer states. Each rank
 * prints the seconds of srt_engine_load_named(), the bytes that it read meanwhile, the bytes of its
 * shards and the most memory that the process has had. tests/tools/test_load_memory_long.sh checks
 * the bytes, bench/peer_load.py compares the seconds with safetensors':
 *
 *     shardrun -n 4 bench/bench_load FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shardrt/models/families.h>
#include <shardrt/shardrt.h>

static void check_status(srt_status_t status)
{
	if (status == SRT_OK)
		return;
	fprintf(stderr, "bench_load: %s\n", srt_error_last());
	exit(1);
}

/* The number after `key` in a file of /proc. */
static unsigned long long read_number(const char *path, const char *key)
{
	unsigned long long value = 0;
	char line[256];
	FILE *file = fopen(path, "r");

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoull(line + strlen(key), NULL, 10);
	if (file == NULL || fclose(file) != 0 || value == 0) {
		fprintf(stderr, "bench_load: no %s in %s\n", key, path);
		exit(1);
	}
	return value;
}

static double read_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void load(srt_engine_t *engine, const srt_family_t *family,
		 const srt_decoder_config_t *config, const char *folder, srt_stream_t *stream)
{
	srt_family_file_t match;
	srt_file_names_t names;
	srt_file_t *file;

	check_status(srt_file_open(folder, &file));
	check_status(srt_family_match(family, config, file, folder, &match));
	srt_file_close(file);
	names = srt_family_names(&match);
	names.cast = 1; /* the folder may be in 16 bits */
	check_status(srt_engine_load_named(engine, folder, &names, stream));
}

/* Bytes of this rank's parts of all parameters. */
static unsigned long long count_shards(srt_engine_t *engine, int rank)
{
	unsigned long long nbytes = 0;
	srt_param_t *param;
	srt_part_t part;

	for (size_t i = 0; (param = srt_engine_param_at(engine, i)) != NULL; i++) {
		check_status(srt_param_part(param, rank, &part));
		nbytes += (unsigned long long)part.nelem * sizeof(float);
	}
	return nbytes;
}

int main(int argc, char **argv)
{
	const srt_optim_options_t none = { .size = sizeof(none), .kind = SRT_OPTIM_NONE };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; /* zero3 */
	const srt_model_options_t model = { .dtype = SRT_F32 };
	const srt_family_t *family;
	srt_decoder_config_t config;
	srt_decoder_t *decoder;
	srt_context_t *context;
	srt_stream_t *stream;
	srt_engine_t *engine;
	unsigned long long before, read;
	char path[4096];
	double seconds;

	if (argc != 2) {
		fprintf(stderr, "usage: bench_load FOLDER\n");
		return 2;
	}
	options.optim = &none;
	snprintf(path, sizeof(path), "%s/config.json", argv[1]);
	check_status(srt_family_read_config(path, &family, &config));
	check_status(srt_context_create(NULL, &context));
	check_status(srt_stream_create(srt_context_device(context), 0, "bench", &stream));
	check_status(srt_engine_create(context, &options, &engine));
	check_status(srt_decoder_declare(engine, &config, &model, &decoder));
	check_status(srt_engine_build(engine));
	before = read_number("/proc/self/io", "rchar:");
	seconds = read_clock();
	load(engine, family, &config, argv[1], stream);
	seconds = read_clock() - seconds;
	read = read_number("/proc/self/io", "rchar:") - before;
	printf("{\"load\": %.6f, \"read\": %llu, \"shards\": %llu, \"peak\": %llu, \"version\": "
	       "\"%s\"}\n",
	       seconds, read, count_shards(engine, srt_context_rank(context)),
	       read_number("/proc/self/status", "VmHWM:") * 1024, srt_version_string());
	srt_decoder_destroy(decoder);
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return 0;
}
