/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the manifest of a sharded checkpoint up to its checksum, which is added. */
#include "base/base.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

#define TAIL (sizeof(SRT_MANIFEST_CHECKSUM) - 1 + 16 + sizeof(SRT_MANIFEST_TAIL) - 1)

/* What a manifest that is accepted promises to those who read the files. */
static void check_tensor(const srt_manifest_t *m, const srt_manifest_tensor_t *t)
{
	int64_t covered = 0;

	FUZZ_CHECK(srt_manifest_find(m, t->kind, t->name) == t);
	FUZZ_CHECK(t->ndim >= 0 && t->ndim <= SRT_MAX_DIMS);
	for (size_t b = 0; b < t->nboxes; b++) {
		const srt_manifest_box_t *box = &t->boxes[b];
		const int64_t n = srt_box_nelem(t->ndim, box->box.size);

		FUZZ_CHECK(box->file < m->nfiles && n > 0);
		FUZZ_CHECK(box->nbytes == (size_t)n * srt_dtype_size(t->dtype));
		FUZZ_CHECK(box->nblocks == srt_count_blocks(box->nbytes));
		for (int d = 0; d < t->ndim; d++)
			FUZZ_CHECK(box->box.offset[d] >= 0 &&
				   box->box.size[d] <= t->shape[d] - box->box.offset[d]);
		covered += n;
	}
	FUZZ_CHECK(covered == srt_box_nelem(t->ndim, t->shape));
}

/* The message, which names parts of the file, can be shown on a terminal. */
static void check_message(void)
{
	size_t n;

	for (const char *c = srt_last_error(); *c; c += n) {
		n = srt_utf8_length(c);
		FUZZ_CHECK(n > 0 && (unsigned char)*c >= 0x20 && *c != 0x7f);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	srt_manifest_t m = { .world = 0 }, again = { .world = 0 };
	char *text = malloc(nbytes + TAIL + 1), *written;
	size_t nwritten;

	FUZZ_CHECK(text != NULL);
	if (nbytes > 0)
		memcpy(text, input, nbytes);
	snprintf(text + nbytes, TAIL + 1, SRT_MANIFEST_CHECKSUM "%016llx" SRT_MANIFEST_TAIL,
		 (unsigned long long)srt_block_hash(text, nbytes));
	if (srt_manifest_parse(text, nbytes + TAIL, &m) == SRT_OK) {
		for (size_t i = 0; i < m.ntensors; i++)
			check_tensor(&m, &m.tensors[i]);
		for (size_t i = 0; i < m.nfiles; i++)
			FUZZ_CHECK(strchr(m.files[i].name, '/') == NULL);
		FUZZ_CHECK(srt_manifest_write(&m, &written, &nwritten) == SRT_OK);
		FUZZ_CHECK(srt_manifest_parse(written, nwritten, &again) == SRT_OK);
		FUZZ_CHECK(again.ntensors == m.ntensors && again.nentries == m.nentries);
		free(written);
	} else {
		check_message();
	}
	srt_manifest_clear(&again);
	srt_manifest_clear(&m);
	free(text);
	return 0;
}
