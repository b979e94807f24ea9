/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srt_checkpoint_verify(): all bytes of a sharded checkpoint compared with its manifest, file after
 * file, and all defects reported.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <shardrt/checkpoint_file.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/box_reader.h"

typedef struct verifier {
	srt_box_reader_t reader;
	void (*report)(const char *sentence, void *arg);
	void *arg;
	srt_checkpoint_verified_t found;
} verifier_t;

/* Reports the last error. */
static void report(verifier_t *v)
{
	v->found.ndefects++;
	if (v->report != NULL)
		v->report(srt_error_last(), v->arg);
}

/* One sentence for all damaged blocks of a box. */
static void verify_box(verifier_t *v, const srt_manifest_tensor_t *t, const srt_manifest_box_t *b)
{
	const srt_safetensors_tensor_t *source;
	size_t nbad = 0, nbytes;
	srt_status_t status;
	srt_error_text_t why;

	if (srt_box_reader_find(&v->reader, t, b, &source) != SRT_OK) {
		report(v);
		return;
	}
	for (size_t i = 0; i < b->nblocks; i++) {
		status = srt_box_reader_read_block(&v->reader, t, b, source, i, &nbytes);
		v->found.nbytes += nbytes;
		if (status == SRT_OK)
			continue;
		if (status != SRT_ERR_FORMAT) /* that sentence names the tensor */
			srt_fail_prefix(status,
					"%s: ", srt_manifest_describe(t->kind, t->name).text);
		if (nbad++ == 0)
			srt_error_save(&why);
	}
	if (nbad == 0)
		return;
	srt_error_restore(&why);
	if (nbad > 1)
		srt_fail_prefix(SRT_ERR_FORMAT, "%zu of %zu blocks are damaged, the first: ", nbad,
				b->nblocks);
	report(v);
}

/* A file that cannot be opened or is another one is reported once. */
static void verify_file(verifier_t *v, size_t i)
{
	const srt_manifest_t *m = &v->reader.manifest;
	size_t nboxes = 0;

	if (srt_box_reader_open_file(&v->reader, i) != SRT_OK) {
		report(v);
		return;
	}
	for (size_t t = 0; t < m->ntensors; t++) {
		for (size_t b = 0; b < m->tensors[t].nboxes; b++) {
			if (m->tensors[t].boxes[b].file != i)
				continue;
			nboxes++;
			verify_box(v, &m->tensors[t], &m->tensors[t].boxes[b]);
		}
	}
	/* A box that the file lacks was reported. */
	if (srt_safetensors_count(v->reader.open[i]) <= nboxes)
		return;
	srt_fail(SRT_ERR_FORMAT, "%s/%s has %zu tensors, but the manifest has %zu boxes in it",
		 v->reader.folder, m->files[i].name, srt_safetensors_count(v->reader.open[i]),
		 nboxes);
	report(v);
}

static bool is_ours(const srt_manifest_t *m, const char *name)
{
	for (size_t i = 0; i < m->nfiles; i++)
		if (strcmp(m->files[i].name, name) == 0)
			return true;
	return false;
}

/* Readers that take all safetensors files of a folder must find no others. */
static void verify_folder(verifier_t *v)
{
	static const char suffix[] = ".safetensors";
	DIR *dir = opendir(v->reader.folder);
	const struct dirent *entry;

	if (dir == NULL) {
		srt_fail(SRT_ERR_IO, "cannot list %s: %s", v->reader.folder, strerror(errno));
		report(v);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		const size_t n = strlen(entry->d_name), tail = sizeof(suffix) - 1;

		if (n < tail || strcmp(entry->d_name + n - tail, suffix) != 0 ||
		    is_ours(&v->reader.manifest, entry->d_name))
			continue;
		srt_fail(SRT_ERR_FORMAT,
			 "%s/%s is not a file of this checkpoint: readers that take all "
			 "safetensors files of the folder, as PyTorch's, would read it",
			 v->reader.folder, srt_printable(entry->d_name).text);
		report(v);
	}
	closedir(dir);
}

srt_status_t srt_checkpoint_verify(const char *folder,
				   void (*report_defect)(const char *sentence, void *arg),
				   void *arg, srt_checkpoint_verified_t *verified)
{
	verifier_t v = { .report = report_defect,
			 .arg = arg,
			 .found = SRT_CHECKPOINT_VERIFIED_INIT };
	const srt_manifest_t *m = &v.reader.manifest;
	srt_status_t status;

	SRT_NOT_NULL(folder);
	SRT_TRY(srt_struct_check(verified, "srt_checkpoint_verified_t"));
	status = srt_box_reader_open(&v.reader, folder);
	v.found.nfiles = m->nfiles;
	if (status == SRT_OK) {
		v.found.ntensors = m->ntensors;
		for (size_t t = 0; t < m->ntensors; t++)
			v.found.nboxes += m->tensors[t].nboxes;
		for (size_t i = 0; i < m->nfiles; i++)
			verify_file(&v, i);
		verify_folder(&v);
	} else if (status == SRT_ERR_FORMAT) {
		report(&v); /* of the manifest */
		status = SRT_OK;
	}
	srt_box_reader_close(&v.reader);
	if (status == SRT_OK && v.found.ndefects > 0)
		status = srt_fail(SRT_ERR_FORMAT, "checkpoint %s has %zu defects", folder,
				  v.found.ndefects);
	if (verified != NULL && (status == SRT_OK || status == SRT_ERR_FORMAT))
		srt_struct_write(verified, &v.found, sizeof(v.found), "srt_checkpoint_verified_t");
	return status;
}
