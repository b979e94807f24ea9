/* SPDX-License-Identifier: BSD-3-Clause */
/* Shard tables: chunks of ceil(d/W), empty shards after the end, and PyTorch's own table. */
#include "runtime/engine/engine.h"
#include "tests/harness/check.h"

static void check_table(int64_t d, int world, const int64_t *sizes)
{
	int64_t next = 0;

	for (int r = 0; r < world; r++) {
		int64_t offset, size;

		srt_shard_rows(d, world, r, &offset, &size);
		CHECK_INT(offset, next);
		CHECK_INT(size, sizes[r]);
		next = offset + size;
	}
	CHECK_INT(next, d);
}

/* For all sizes: shards follow each other, cover everything, only the last non-empty is short. */
static void check_properties(int64_t d, int world)
{
	int64_t chunk, first, next = 0;

	srt_shard_rows(d, world, 0, &first, &chunk);
	CHECK_INT(first, 0);
	CHECK(chunk * world >= d && (d == 0 || (chunk - 1) * world < d));
	for (int r = 0; r < world; r++) {
		int64_t offset, size, expected = d - chunk * r;

		srt_shard_rows(d, world, r, &offset, &size);
		expected = expected < 0 ? 0 : expected > chunk ? chunk : expected;
		CHECK_MSG(offset == next && size == expected, "d %lld, world %d, rank %d",
			  (long long)d, world, r);
		next = offset + size;
	}
	CHECK_INT(next, d);
}

static char *read_file(const char *dir, const char *name)
{
	char path[4096], *text = NULL;
	long nbytes;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "rb");
	if (file == NULL)
		return NULL;
	if (fseek(file, 0, SEEK_END) == 0 && (nbytes = ftell(file)) >= 0 &&
	    (text = calloc((size_t)nbytes + 1, 1)) != NULL) {
		rewind(file);
		if (fread(text, 1, (size_t)nbytes, file) != (size_t)nbytes)
			text[0] = '\0';
	}
	fclose(file);
	return text;
}

static const char *number(const char *at, const char *key, int64_t *value)
{
	char *end;

	at = at != NULL ? strstr(at, key) : NULL;
	if (at == NULL)
		return NULL;
	at += strlen(key);
	at += strspn(at, "\": [\n\t,");
	*value = strtoll(at, &end, 10);
	return end == at ? NULL : end;
}

/* The recorded rows are {"n", "world", "offsets": [...], "sizes": [...], ...}. */
static int check_golden(const char *text)
{
	const char *at = strstr(text, "\"rows\"");
	int64_t n, world;
	int nrows = 0;

	while ((at = number(at, "\"n\"", &n)) != NULL &&
	       (at = number(at, "\"world\"", &world)) != NULL) {
		const char *offsets = strstr(at, "\"offsets\""), *sizes = strstr(at, "\"sizes\"");
		const char *offset_key = "\"offsets\"", *size_key = "\"sizes\"";

		for (int r = 0; r < world; r++) {
			int64_t offset, size, golden_offset = -1, golden_size = -1;

			offsets = number(offsets, offset_key, &golden_offset);
			sizes = number(sizes, size_key, &golden_size);
			offset_key = size_key = "";
			CHECK_OR_DIE(offsets != NULL && sizes != NULL);
			srt_shard_rows(n, (int)world, r, &offset, &size);
			CHECK_MSG(size == golden_size && offset == golden_offset,
				  "%lld rows, rank %d of %lld: %lld+%lld, recorded %lld+%lld",
				  (long long)n, r, (long long)world, (long long)offset,
				  (long long)size, (long long)golden_offset,
				  (long long)golden_size);
		}
		nrows++;
	}
	return nrows;
}

int main(void)
{
	const char *golden = getenv("SRT_GOLDEN_DIR");
	char *text = golden != NULL ? read_file(golden, "cases/shard_table_fsdp2/case.json") : NULL;

	check_table(5, 4, (const int64_t[]){ 2, 2, 1, 0 });
	check_table(0, 3, (const int64_t[]){ 0, 0, 0 });
	check_table(1, 5, (const int64_t[]){ 1, 0, 0, 0, 0 });
	check_table(6, 4, (const int64_t[]){ 2, 2, 2, 0 });
	check_table(7, 3, (const int64_t[]){ 3, 3, 1 });
	check_table(8, 1, (const int64_t[]){ 8 });
	for (int64_t d = 0; d < 70; d++) {
		for (int world = 1; world <= 17; world++)
			check_properties(d, world);
	}
	check_properties(INT64_MAX / 16, 1000);
	check_properties(INT64_MAX / 16 - 1, 7);
	if (text != NULL)
		CHECK(check_golden(text) > 0);
	else
		printf("no recorded tables: shard_table_fsdp2 was not found by configure\n");
	free(text);
	return check_done();
}
