/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: a line with the number of bytes of data, then the header of a safetensors file. */
#include "base/base.h"
#include "runtime/checkpoint/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

/* What a header that is accepted promises to those who read the data. */
static void check_tables(const srt_safetensors_header_t *h, size_t data_nbytes)
{
	size_t total = 0;

	for (size_t i = 0; i < h->ntensors; i++) {
		const srt_safetensors_tensor_t *t = &h->tensors[i];
		size_t nelem = 1;

		FUZZ_CHECK(srt_safetensors_header_find(h, t->name) == t);
		FUZZ_CHECK(i == 0 || strcmp(h->tensors[i - 1].name, t->name) < 0);
		FUZZ_CHECK(t->ndim >= 0);
		for (int k = 0; k < srt_safetensors_nsizes(t); k++)
			nelem *= (size_t)t->shape[k];
		FUZZ_CHECK(t->nelem == nelem || t->ndim > SRT_SAFETENSORS_MAX_DIMS);
		nelem = t->nelem;
		FUZZ_CHECK(t->nbytes >= nelem / 2 && t->nbytes <= 8 * nelem);
		FUZZ_CHECK(t->dtype == SRT_DTYPE_NONE ||
			   t->nbytes == nelem * srt_dtype_size(t->dtype));
		FUZZ_CHECK(t->offset <= data_nbytes && t->nbytes <= data_nbytes - t->offset);
		total += t->nbytes;
	}
	FUZZ_CHECK(total == data_nbytes);
	for (size_t i = 0; i < h->nmetadata; i++)
		FUZZ_CHECK(srt_safetensors_header_metadata(h, h->metadata[i].key) ==
			   h->metadata[i].value);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	srt_safetensors_header_t header = { 0 };
	char *text = fuzz_text(input, nbytes), *json = text;
	size_t data_nbytes = strtoull(text, &json, 10);

	json += *json == '\n';
	nbytes -= (size_t)(json - text);
	/* Exactly the header, so that ASan sees a read past its end. */
	json = fuzz_text((uint8_t *)json, nbytes);
	free(text);
	if (srt_safetensors_parse(json, nbytes, data_nbytes, &header) == SRT_OK) {
		check_tables(&header, data_nbytes);
	} else { /* the message, which names parts of the header, can be shown on a terminal */
		const char *c = srt_error_last();

		for (size_t n; *c; c += n) {
			n = srt_utf8_length(c);
			FUZZ_CHECK(n > 0 && (unsigned char)*c >= 0x20 && *c != 0x7f);
			FUZZ_CHECK(n != 2 || memcmp(c, "\xc2\xa0", 2) >= 0); /* C1 */
		}
		FUZZ_CHECK(c != srt_error_last());
	}
	srt_safetensors_header_free(&header);
	free(json);
	return 0;
}
