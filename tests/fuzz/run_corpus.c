/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The main program of a fuzz target without libFuzzer: fuzz_x FOLDER. Runs the target on each file
 * of the folder and on each beginning of it: messages and files can be cut anywhere.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>

#include "tests/fuzz/fuzz.h"
#include "tests/harness/check.h" /* CHECK_SANITIZED */

#define MAX_FILE 65536

/* Returns the number of inputs. */
static size_t run_file(const char *path)
{
	static uint8_t bytes[MAX_FILE];
	FILE *file = fopen(path, "rb");
	size_t n = file != NULL ? fread(bytes, 1, sizeof(bytes), file) : 0;

	if (file == NULL || ferror(file)) {
		fprintf(stderr, "FAIL: cannot read %s: %s\n", path, strerror(errno));
		exit(1);
	}
	fclose(file);
	for (size_t i = 0; i <= n; i++) {
		/* Memory of exactly this size, so that ASan sees a read past its end. */
		uint8_t *input = malloc(i > 0 ? i : 1);

		FUZZ_CHECK(input != NULL);
		memcpy(input, bytes, i);
		LLVMFuzzerTestOneInput(input, i);
		free(input);
	}
	return n + 1;
}

/* Ends a parser that takes many times its input's size of memory, or does not end: the inputs are
 * small. With libFuzzer its options do this. */
static void set_limits(void)
{
	const struct rlimit seconds = { 120, 120 }; /* of processor time */
#ifndef CHECK_SANITIZED                             /* a sanitizer reserves terabytes */
	const struct rlimit nbytes = { 1 << 28, 1 << 28 };

	FUZZ_CHECK(setrlimit(RLIMIT_AS, &nbytes) == 0);
#endif
	FUZZ_CHECK(setrlimit(RLIMIT_CPU, &seconds) == 0);
}

int main(int argc, char **argv)
{
	DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
	size_t nfiles = 0, ninputs = 0;
	char path[4096];

	set_limits();
	if (folder == NULL) {
		fprintf(stderr, "FAIL: %s FOLDER: the folder of the corpus cannot be read\n",
			argv[0]);
		return 1;
	}
	for (struct dirent *e; (e = readdir(folder)) != NULL;) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
		ninputs += run_file(path);
		nfiles++;
	}
	closedir(folder);
	printf("%zu inputs, from %zu files\n", ninputs, nfiles);
	return nfiles > 0 ? 0 : 1;
}
