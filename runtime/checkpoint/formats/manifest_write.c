/* SPDX-License-Identifier: BSD-3-Clause */
/* Manifest -> text (manifest.h). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "runtime/checkpoint/formats/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash128.h"

#ifdef HAVE_JANSSON

#include <jansson.h>

/* jansson: every function takes NULL, the result of one that failed, and fails too. The failure is
 * seen once, at the end. */

static json_t *write_integers(const int64_t *values, int n)
{
	json_t *array = json_array();

	for (int i = 0; i < n; i++)
		if (json_array_append_new(array, json_integer(values[i])) != 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}

static json_t *write_hex(const unsigned char *bytes, size_t nbytes)
{
	static const char digits[] = "0123456789abcdef";
	char *text = srt_calloc(2 * nbytes + 1, 1, "a text of the manifest");
	json_t *string;

	if (text == NULL)
		return NULL;
	for (size_t i = 0; i < nbytes; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	string = json_string(text);
	free(text);
	return string;
}

/* Most significant digit first. */
static json_t *write_u64s(const uint64_t *values, size_t n)
{
	char *text = srt_calloc(16 * n + 1, 1, "hashes of the manifest");
	json_t *string;

	if (text == NULL)
		return NULL;
	for (size_t i = 0; i < n; i++)
		snprintf(text + 16 * i, 17, "%016" PRIx64, values[i]);
	string = json_string(text);
	free(text);
	return string;
}

static json_t *write_double(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return write_u64s(&bits, 1);
}

static json_t *write_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return json_integer(bits);
}

/* Adds to an array, or fails as a whole. */
static bool append(json_t *array, json_t *value)
{
	return json_array_append_new(array, value) == 0;
}

static bool write_files(json_t *array, const srt_manifest_t *m)
{
	bool ok = true;

	for (size_t i = 0; i < m->nfiles && ok; i++)
		ok = append(array, json_pack("{s:s, s:I, s:o}", "name", m->files[i].name, "nbytes",
					     (json_int_t)m->files[i].nbytes, "header",
					     write_u64s(&m->files[i].header_hash, 1)));
	return ok;
}

static bool write_boxes(json_t *array, const srt_manifest_tensor_t *t)
{
	bool ok = true;

	for (size_t i = 0; i < t->nboxes && ok; i++) {
		const srt_manifest_box_t *b = &t->boxes[i];

		ok = append(array, json_pack("{s:I, s:o, s:o, s:o}", "file", (json_int_t)b->file,
					     "offset", write_integers(b->box.offset, t->ndim),
					     "size", write_integers(b->box.size, t->ndim), "xxh3",
					     write_u64s(b->hashes, b->nblocks)));
	}
	return ok;
}

static bool write_tensors(json_t *array, const srt_manifest_t *m)
{
	bool ok = true;

	for (size_t i = 0; i < m->ntensors && ok; i++) {
		const srt_manifest_tensor_t *t = &m->tensors[i];
		json_t *boxes = json_array(), *tensor;

		ok = write_boxes(boxes, t);
		tensor = json_pack("{s:s, s:s, s:s, s:o, s:i}", "name", t->name, "kind",
				   srt_manifest_kinds[t->kind], "dtype", srt_dtype_name(t->dtype),
				   "shape", write_integers(t->shape, t->ndim), "steps",
				   (int)t->steps);
		if (t->group >= 0)
			ok = json_object_set_new(tensor, "group", json_integer(t->group)) == 0 &&
			     ok;
		ok = json_object_set_new(tensor, "boxes", boxes) == 0 && ok;
		ok = append(array, tensor) && ok;
	}
	return ok;
}

static bool write_groups(json_t *array, const srt_manifest_t *m)
{
	bool ok = true;

	for (size_t i = 0; i < m->ngroups && ok; i++) {
		const srt_manifest_group_t *g = &m->groups[i];
		json_t *fields = json_object();

		if (g->optimizer != NULL)
			ok = json_object_set_new(fields, "optimizer", json_string(g->optimizer)) ==
			     0;
		ok = json_object_set_new(fields, "has_lr", json_boolean(g->has_lr)) == 0 && ok;
		for (size_t f = 0; f < srt_manifest_nfields; f++) {
			const srt_manifest_field_t *field = &srt_manifest_fields[f];
			const char *at = (const char *)&g->state + field->offset;
			int32_t integer;
			float real;

			memcpy(&integer, at, sizeof(integer));
			memcpy(&real, at, sizeof(real));
			ok = json_object_set_new(fields, field->name,
						 field->is_float ? write_float(real) :
								   json_integer(integer)) == 0 &&
			     ok;
		}
		ok = append(array, fields) && ok;
	}
	return ok;
}

static json_t *write_scaler(const srt_scaler_state_t *s)
{
	return json_pack("{s:o, s:i, s:i, s:o, s:o}", "scale", write_float(s->scale),
			 "growth_tracker", (int)s->growth_tracker, "growth_interval",
			 (int)s->growth_interval, "growth_factor", write_double(s->growth_factor),
			 "backoff_factor", write_double(s->backoff_factor));
}

static bool write_entries(json_t *array, const srt_manifest_t *m)
{
	bool ok = true;

	for (size_t i = 0; i < m->nentries && ok; i++)
		ok = append(array, json_pack("{s:s, s:o}", "key", m->entries[i].key, "bytes",
					     write_hex(m->entries[i].data, m->entries[i].nbytes)));
	return ok;
}

static bool write_table(json_t *root, const char *name, const srt_manifest_t *m,
			bool (*write)(json_t *array, const srt_manifest_t *m))
{
	json_t *array = json_array();
	const bool ok = write(array, m);

	return json_object_set_new(root, name, array) == 0 && ok;
}

static bool write_root(json_t *root, const srt_manifest_t *m)
{
	return json_object_set_new(root, "shardrt_checkpoint",
				   json_integer(SRT_MANIFEST_VERSION)) == 0 &&
	       json_object_set_new(root, "id", json_string(m->id)) == 0 &&
	       json_object_set_new(root, "world", json_integer(m->world)) == 0 &&
	       json_object_set_new(root, "numerics_version", json_integer(m->numerics_version)) ==
		       0 &&
	       json_object_set_new(root, "numerics", json_string(m->fast ? "fast" : "exact")) ==
		       0 &&
	       json_object_set_new(root, "optimizer", json_string(m->optimizer)) == 0 &&
	       (!m->has_scaler ||
		json_object_set_new(root, "scaler", write_scaler(&m->scaler)) == 0) &&
	       write_table(root, "groups", m, write_groups) &&
	       write_table(root, "entries", m, write_entries) &&
	       write_table(root, "files", m, write_files) &&
	       write_table(root, "tensors", m, write_tensors);
}

srt_status_t srt_manifest_require(const char *call)
{
	return srt_hash_require(call);
}

srt_status_t srt_manifest_write(const srt_manifest_t *m, char **text, size_t *nbytes)
{
	const size_t tail = sizeof(SRT_MANIFEST_CHECKSUM) - 1 + 16 + sizeof(SRT_MANIFEST_TAIL);
	json_t *root = json_object();
	const bool ok = write_root(root, m);
	char *dump = ok ? json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	size_t n;

	json_decref(root);
	if (dump == NULL) /* names are checked when the files are written */
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the manifest cannot be written: a name or key is not UTF-8, or "
				"memory is exhausted");
	n = strlen(dump) - 1; /* the closing brace comes after the checksum */
	if (n + tail - 1 > SRT_MANIFEST_MAX_NBYTES) { /* no load would read it */
		free(dump);
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"the manifest would have %zu bytes, which is more than %zu: save "
				"smaller entries",
				n + tail - 1, SRT_MANIFEST_MAX_NBYTES);
	}
	*text = srt_calloc(n + tail, 1, "the manifest");
	if (*text != NULL) {
		memcpy(*text, dump, n);
		snprintf(*text + n, tail, SRT_MANIFEST_CHECKSUM "%016" PRIx64 SRT_MANIFEST_TAIL,
			 srt_xxh3_64(dump, n));
		*nbytes = n + tail - 1;
	}
	free(dump);
	return *text != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

#else

srt_status_t srt_manifest_require(const char *call)
{
	SRT_TRY(srt_hash_require(call));
	return srt_fail(SRT_ERR_UNSUPPORTED,
			"%s needs jansson, but the library was built without it: install it "
			"(Debian: libjansson-dev) and configure again",
			call);
}

srt_status_t srt_manifest_write(const srt_manifest_t *m, char **text, size_t *nbytes)
{
	(void)m;
	(void)text;
	(void)nbytes;
	return srt_manifest_require("writing a manifest");
}

#endif
