/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes that a rank reads of a sharded checkpoint: the blocks of 1 MiB that have its elements,
 * the manifest and the headers, counted by the system. Run by test_checkpoint_sharded.sh.
 *
 *     test_checkpoint_reads save|load FOLDER ddp|zero3|flat|tp
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <shardrt/shardrt.h>

#include "tests/harness/check.h"
#include "tests/harness/options.h"

#define BLOCK_NBYTES ((int64_t)1 << 20)
#define NPARAMS 2
#define NSTATES 1

static const int64_t shapes[NPARAMS][2] = { { 1031, 1500 }, { 3, 700001 } };
static const char *const names[NPARAMS] = { "a", "b" };

static srt_context_t *context;
static srt_mesh_t *mesh;
static srt_engine_t *engine;
static srt_param_t *param[NPARAMS];

static void declare(const char *form)
{
	static const char *const dims[] = { "dp", "tp" };
	const int size[] = { srt_context_world_size(context) / 2, 2 };
	const int is_tp = strcmp(form, "tp") == 0;
	srt_engine_options_t options = {
		ENGINE_BASE,
		.strategy = strcmp(form, "ddp") == 0 ? SRT_STRATEGY_DDP : SRT_STRATEGY_ZERO3,
		.optim = OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.1f, .momentum = 0.9)
	};
	const srt_unit_options_t unit = { .size = sizeof(unit),
					  .flat = strcmp(form, "flat") == 0 ? SRT_FLAT_VIEWS :
									      SRT_FLAT_NO };
	/* columns of a, in one block, so that a rank has a box of it */
	const srt_param_options_t cut = { PARAM_BASE,
					  .placement = { .mesh_dim = "tp", .tensor_dim = 1 } };
	srt_unit_t *root;

	if (is_tp)
		CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, size, dims, &mesh));
	options.mesh = mesh;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", &unit, &root));
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK_OR_DIE(srt_param_create(root, names[i], SRT_F32, 2, shapes[i],
						 is_tp && i == 0 ? &cut : NULL, &param[i]));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
}

/* Element i of the part, counted from its begin, as row and column of the tensor. */
static void find_element(const srt_part_t *part, const int64_t *shape, int64_t i, int64_t at[2])
{
	const int64_t columns = part->is_flat ? shape[1] : part->size[1];
	const int64_t k = part->is_flat ? part->first + i : i;

	at[0] = k / columns + (part->is_flat ? 0 : part->offset[0]);
	at[1] = k % columns + (part->is_flat ? 0 : part->offset[1]);
}

/* The bytes of the blocks of a saved box that have elements of the part. */
static int64_t count_box(const srt_file_box_t *box, const srt_part_t *part, const int64_t *shape)
{
	const int64_t nblocks = ((int64_t)box->nbytes + BLOCK_NBYTES - 1) / BLOCK_NBYTES;
	char *is_needed = calloc((size_t)nblocks + 1, 1);
	int64_t nbytes = 0;

	CHECK_OR_DIE(is_needed != NULL);
	for (int64_t i = 0; i < part->nelem; i++) {
		int64_t at[2], row, column;

		find_element(part, shape, i, at);
		row = at[0] - box->offset[0];
		column = at[1] - box->offset[1];
		if (row >= 0 && row < box->size[0] && column >= 0 && column < box->size[1])
			is_needed[(row * box->size[1] + column) * 4 / BLOCK_NBYTES] = 1;
	}
	for (int64_t i = 0; i < nblocks; i++)
		if (is_needed[i])
			nbytes += i < nblocks - 1 ? BLOCK_NBYTES :
						    (int64_t)box->nbytes - i * BLOCK_NBYTES;
	free(is_needed);
	return nbytes;
}

/* The needed bytes, in blocks; *exact: without. */
static int64_t count_needed(const srt_file_t *file, int64_t *exact)
{
	int64_t nbytes = 0;

	*exact = 0;
	for (int i = 0; i < NPARAMS; i++) {
		const char *key[1 + NSTATES] = { names[i], i == 0 ? "optimizer.state0.a" :
								    "optimizer.state0.b" };
		srt_part_t part;

		CHECK_OK_OR_DIE(srt_param_part(param[i], srt_context_rank(context), &part));
		*exact += (1 + NSTATES) * part.nelem * 4;
		for (int k = 0; k <= NSTATES; k++) {
			srt_file_box_t box;

			for (size_t b = 0; srt_file_get_box(file, key[k], b, &box) == SRT_OK; b++)
				nbytes += count_box(&box, &part, shapes[i]);
		}
	}
	return nbytes;
}

/* The manifest, and the headers of all files. */
static int64_t count_overhead(const char *folder, const srt_file_t *file)
{
	srt_file_checkpoint_t c = SRT_FILE_CHECKPOINT_INIT;
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	char path[512];
	struct stat st;
	int64_t nbytes, tensors = 0;

	CHECK_OK_OR_DIE(srt_file_get_checkpoint(file, &c));
	snprintf(path, sizeof(path), "%s/manifest.json", folder);
	CHECK_OR_DIE(stat(path, &st) == 0);
	nbytes = st.st_size;
	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++)
		tensors += (int64_t)t.nbytes;
	CHECK_INT(tensors, (1 + NSTATES) * 4 * (1031 * 1500 + 3 * 700001));
	/* by tensor 120 bytes in a header, and 60 for PyTorch; by file 300 */
	return nbytes + (int64_t)c.nfiles * (300 + NPARAMS * (1 + NSTATES) * 180);
}

static int64_t count_read(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	long long n = -1;

	if (f != NULL) {
		CHECK_OR_DIE(fscanf(f, "rchar: %lld", &n) == 1);
		fclose(f);
	}
	return n;
}

static void test_load(const char *folder, srt_stream_t *stream)
{
	int64_t needed, exact, overhead, before, nread;
	srt_file_t *file;

	CHECK_OK_OR_DIE(srt_file_open_all(folder, &file));
	needed = count_needed(file, &exact);
	overhead = count_overhead(folder, file);
	srt_file_close(file);
	before = count_read();
	CHECK_OK_OR_DIE(srt_checkpoint_load(engine, folder, NULL, stream));
	nread = count_read() - before;
	printf("rank %d needs %lld bytes, in blocks %lld, and read %lld\n",
	       srt_context_rank(context), (long long)exact, (long long)needed, (long long)nread);
	CHECK(needed >= exact && exact > 0);
	CHECK_MSG(nread >= needed && nread <= needed + needed / 20 + overhead,
		  "%lld bytes were read, needed are %lld in blocks, and %lld of headers",
		  (long long)nread, (long long)needed, (long long)overhead);
}

int main(int argc, char **argv)
{
	srt_stream_t *stream;

	CHECK_OR_DIE(argc == 4);
	if (count_read() < 0) {
		puts("SKIP: no /proc/self/io, which counts the bytes that are read");
		return 77;
	}
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	declare(argv[3]);
	if (strcmp(argv[1], "save") == 0)
		CHECK_OK(srt_checkpoint_save(engine, argv[2], NULL, stream));
	else
		test_load(argv[2], stream);
	srt_engine_destroy(engine);
	srt_mesh_destroy(mesh);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
