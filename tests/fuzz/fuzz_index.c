/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the index of a model of several files. */
#include "base/base.h"
#include "runtime/checkpoint/formats/index.h"
#include "tests/fuzz/fuzz.h"

/* What an index that is accepted promises to those who open its files. */
static void check_tables(const srt_index_t *index)
{
	FUZZ_CHECK(index->ntensors > 0 && index->nfiles > 0 && index->nfiles <= index->ntensors);
	for (size_t i = 0; i < index->ntensors; i++) {
		const srt_index_tensor_t *t = &index->tensors[i];
		const size_t file = srt_index_file(index, t->file);

		FUZZ_CHECK(i == 0 || strcmp(index->tensors[i - 1].name, t->name) < 0);
		FUZZ_CHECK(file < index->nfiles && strcmp(index->files[file], t->file) == 0);
	}
	for (size_t i = 0; i < index->nfiles; i++) {
		FUZZ_CHECK(i == 0 || strcmp(index->files[i - 1], index->files[i]) < 0);
		FUZZ_CHECK(index->files[i][0] != '\0' && strchr(index->files[i], '/') == NULL);
		FUZZ_CHECK(strcmp(index->files[i], ".") != 0 && strcmp(index->files[i], "..") != 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	srt_index_t index = { 0 };
	char *text = fuzz_text(input, nbytes);

	if (srt_index_parse(text, nbytes, &index) == SRT_OK) {
		check_tables(&index);
	} else { /* the message, which names parts of the index, can be shown on a terminal */
		const char *c = srt_error_last();

		for (size_t n; *c; c += n) {
			n = srt_utf8_length(c);
			FUZZ_CHECK(n > 0 && (unsigned char)*c >= 0x20 && *c != 0x7f);
		}
		FUZZ_CHECK(c != srt_error_last());
	}
	srt_index_free(&index);
	free(text);
	return 0;
}
