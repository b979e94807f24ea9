/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: the manifest of a sharded checkpoint up to its checksum, which is added. One that is
 * accepted is also read as a folder without files, by <shardrt/file.h>.
 */
#include <unistd.h>

#include <shardrt/checkpoint_file.h>

#include "base/base.h"
#include "base/hash128.h"
#include "runtime/checkpoint/formats/manifest.h"
#include "runtime/checkpoint/formats/safetensors.h"
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

	for (const char *c = srt_error_last(); *c; c += n) {
		n = srt_utf8_length(c);
		FUZZ_CHECK(n > 0 && (unsigned char)*c >= 0x20 && *c != 0x7f);
	}
}

static char folder[] = P_tmpdir "/fuzz_manifest.XXXXXX";
static char path[sizeof(folder) + 16];

static void remove_folder(void)
{
	unlink(path);
	rmdir(folder);
}

/* Writes the manifest to the folder of this process. */
static void write_manifest(const char *text, size_t nbytes)
{
	FILE *f;

	if (path[0] == '\0') {
		FUZZ_CHECK(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
		snprintf(path, sizeof(path), "%s/" SRT_MANIFEST_NAME, folder);
	}
	f = fopen(path, "w");
	FUZZ_CHECK(f != NULL && fwrite(text, 1, nbytes, f) == nbytes && fclose(f) == 0);
}

/* All that can be asked of a tensor whose files are not there. */
static void check_file_tensor(const srt_file_t *file, size_t i)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	srt_file_saved_t saved = SRT_FILE_SAVED_INIT;
	srt_file_box_t box;
	size_t nboxes = 0, nbytes = 0;
	char element[8];

	FUZZ_CHECK(srt_file_at(file, i, &t) == SRT_OK);
	FUZZ_CHECK(srt_file_get_saved(file, t.name, &saved) == SRT_OK);
	for (; srt_file_get_box(file, t.name, nboxes, &box) == SRT_OK; nboxes++)
		nbytes += box.nbytes;
	FUZZ_CHECK(nboxes == saved.nboxes && nbytes == t.nbytes);
	FUZZ_CHECK(srt_file_read(file, t.name, t.nbytes, 0, NULL) == SRT_OK);
	if (t.nelem > 0)
		FUZZ_CHECK(srt_file_read(file, t.name, t.nbytes - t.nbytes / t.nelem,
					 t.nbytes / t.nelem, element) == SRT_ERR_NOT_FOUND);
}

static void check_folder(const char *text, size_t nbytes, const srt_manifest_t *m)
{
	srt_checkpoint_verified_t v = SRT_CHECKPOINT_VERIFIED_INIT;
	srt_file_t *file;
	const char *key, *value;
	srt_status_t status;

	write_manifest(text, nbytes);
	status = srt_file_open_all(folder, &file);
	FUZZ_CHECK(status == SRT_OK || status == SRT_ERR_FORMAT); /* names that collide in files */
	if (status == SRT_OK) {
		FUZZ_CHECK(srt_file_count(file) == m->ntensors);
		for (size_t i = 0; i < m->ntensors; i++)
			check_file_tensor(file, i);
		for (size_t i = 0; srt_file_get_entry(file, i, &key, NULL, NULL) == SRT_OK; i++)
			if (srt_file_find_metadata(file, key, &value) == SRT_OK)
				FUZZ_CHECK(value[0] != '\0');
		srt_file_close(file);
	}
	status = srt_checkpoint_verify(folder, NULL, NULL, &v);
	FUZZ_CHECK(v.ndefects == m->nfiles && (status == SRT_OK) == (m->nfiles == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	srt_manifest_t m = { .world = 0 }, again = { .world = 0 };
	char *text = calloc(nbytes + TAIL + 1, 1), *parsed, *written;
	size_t nwritten;

	FUZZ_CHECK(text != NULL);
	if (nbytes > 0)
		memcpy(text, input, nbytes);
	snprintf(text + nbytes, TAIL + 1, SRT_MANIFEST_CHECKSUM "%016llx" SRT_MANIFEST_TAIL,
		 (unsigned long long)srt_xxh3_64(text, nbytes));
	parsed = fuzz_text((uint8_t *)text, nbytes + TAIL); /* strings are decoded in it */
	if (srt_manifest_parse(parsed, nbytes + TAIL, &m) == SRT_OK) {
		for (size_t i = 0; i < m.ntensors; i++)
			check_tensor(&m, &m.tensors[i]);
		for (size_t i = 0; i < m.nfiles; i++)
			FUZZ_CHECK(strchr(m.files[i].name, '/') == NULL);
		FUZZ_CHECK(srt_manifest_write(&m, &written, &nwritten) == SRT_OK);
		FUZZ_CHECK(srt_manifest_parse(written, nwritten, &again) == SRT_OK);
		FUZZ_CHECK(again.ntensors == m.ntensors && again.nentries == m.nentries);
		free(written);
		check_folder(text, nbytes + TAIL, &m);
	} else {
		check_message();
	}
	srt_manifest_clear(&again);
	srt_manifest_clear(&m);
	free(parsed);
	free(text);
	return 0;
}
