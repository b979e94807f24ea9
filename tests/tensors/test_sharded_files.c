/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded tensors in safetensors files: saved under one sharding, loaded under another one; what is
 * refused, on all ranks. Run by test_sharded_tensor.sh with the path of a file.
 */
#include "base/base.h"
#include "tests/harness/random.h"
#include "tests/tensors/tensor_case.h"

static tensor_case_t c;

/* Saved under one sharding, loaded under another one. */
static void test_files(const char *path, uint64_t seed)
{
	const int64_t shapes[2][3] = { { 4, 5, 3 }, { 9, 2, 1 } };
	const srt_dtype_t dtypes[] = { SRT_F32, SRT_BF16 };
	srt_sharded_tensor_t *saved[2], *loaded[2], *wrong;
	unsigned char *whole[2];
	tensor_sharding_t s;

	random_state = seed;
	for (int i = 0; i < 2; i++) {
		whole[i] = tensor_random_bytes(60 * 4);
		tensor_random_sharding(&s, &c, 3, shapes[i]);
		saved[i] = tensor_create(&c, i == 0 ? "first" : "second", dtypes[i], 3, shapes[i],
					 &s.sharding);
		tensor_set(&c, saved[i], whole[i]);
		tensor_random_sharding(&s, &c, 3, shapes[i]);
		loaded[1 - i] = tensor_create(&c, i == 0 ? "first" : "second", dtypes[i], 3,
					      shapes[i], &s.sharding);
	}
	CHECK_OK(srt_sharded_tensor_save(saved, 2, c.rank == 0 ? path : NULL, c.stream));
	CHECK_OK(srt_sharded_tensor_load(loaded, 2, path, c.stream));
	tensor_check(&c, loaded[1], whole[0], "loaded");
	tensor_check(&c, loaded[0], whole[1], "loaded");

	tensor_chunks(&s, 0, c.world);
	wrong = tensor_create(&c, "first", SRT_F32, 2, shapes[0], &s.sharding);
	REFUSED(srt_sharded_tensor_load(&wrong, 1, path, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"tensor 'first' is F32 (4,5,3) in");
	srt_sharded_tensor_destroy(wrong);
	wrong = tensor_create(&c, "third", SRT_F32, 2, shapes[0], &s.sharding);
	REFUSED(srt_sharded_tensor_load(&wrong, 1, path, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"has no tensor 'third'");
	REFUSED(srt_sharded_tensor_load(saved, 2, c.rank == c.world - 1 ? "no/such/file" : path,
					c.stream),
		SRT_ERR_NOT_FOUND, "no/such/file");
	REFUSED(srt_sharded_tensor_save(saved, 2, c.rank == 0 ? "no/such/folder/file" : path,
					c.stream),
		SRT_ERR_IO, "no/such/folder");
	REFUSED(srt_sharded_tensor_save((srt_sharded_tensor_t *[]){ wrong, wrong }, 2, path,
					c.stream),
		SRT_ERR_INVALID_ARGUMENT, "third");
	REFUSED(srt_sharded_tensor_save(saved, 0, path, c.stream), SRT_ERR_INVALID_ARGUMENT,
		"the list of tensors is empty");
	REFUSED(srt_sharded_tensor_save(saved, 2, c.rank == 0 ? NULL : path, c.stream),
		SRT_ERR_INVALID_ARGUMENT, "path");
	if (c.world > 1) {
		const size_t n = c.rank == c.world - 1 ? 1 : 2;
		srt_sharded_tensor_t *const turned[] = { saved[c.rank == 0], saved[c.rank != 0] };

		REFUSED(srt_sharded_tensor_save(saved, n, path, c.stream), SRT_ERR_MISMATCH,
			"saving sharded tensors: the tensors differ: rank 0 has 2");
		REFUSED(srt_sharded_tensor_load(saved, n, path, c.stream), SRT_ERR_MISMATCH,
			"loading sharded tensors: the tensors differ: rank 0 has 2");
		REFUSED(srt_sharded_tensor_save(turned, 2, path, c.stream), SRT_ERR_MISMATCH,
			"the tensors differ");
		REFUSED(srt_sharded_tensor_load(turned, 2, path, c.stream), SRT_ERR_MISMATCH,
			"the tensors differ");
	}
	CHECK_OK(srt_sharded_tensor_load(loaded, 2, path, c.stream));
	srt_sharded_tensor_destroy(wrong);
	for (int i = 0; i < 2; i++) {
		srt_sharded_tensor_destroy(saved[i]);
		srt_sharded_tensor_destroy(loaded[i]);
		free(whole[i]);
	}
}

int main(int argc, char **argv)
{
	CHECK_OR_DIE(argc == 2);
	tensor_case_open(&c);
	for (uint64_t seed = 1; seed <= 4; seed++)
		test_files(argv[1], seed * 6007);
	tensor_case_close(&c);
	return check_done();
}
