/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the config.json of a model folder of Hugging Face. */
#include "base/base.h"
#include <shardrt/models/families.h>
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	char *text = fuzz_text(input, nbytes);
	const srt_family_t *family;
	srt_decoder_config_t c;

	if (srt_family_parse_config(text, nbytes, "config.json", &family, &c) == SRT_OK) {
		FUZZ_CHECK(srt_decoder_check(&c, 1) == SRT_OK && c.names != NULL);
		FUZZ_CHECK(srt_decoder_ntensors(&c) > 0 && srt_decoder_nparams(&c, 0) > 0);
		FUZZ_CHECK(!c.has_padding || (c.padding >= 0 && c.padding < c.vocab));
		FUZZ_CHECK(!c.rotary || (c.rope.dim >= 2 && c.rope.dim % 2 == 0));
	} else { /* the message, which names keys and values, can be shown on a terminal */
		const char *at = srt_error_last();

		for (size_t n; *at; at += n) {
			n = srt_utf8_length(at);
			FUZZ_CHECK(n > 0 && (unsigned char)*at >= 0x20 && *at != 0x7f);
		}
		FUZZ_CHECK(at != srt_error_last());
	}
	free(text);
	return 0;
}
