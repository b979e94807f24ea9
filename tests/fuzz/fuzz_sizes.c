/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the metadata entry with the sizes of the model in a file that shardrt-train loads. */
#include "tests/fuzz/fuzz.h"
#include "tools/model_sizes.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	char *text = fuzz_text(input, nbytes), again[TOOL_SIZES_NBYTES];
	srt_decoder_config_t c;

	if (strlen(text) < TOOL_SIZES_NBYTES && tool_parse_sizes(text, &c) == 0) {
		if (srt_decoder_check(&c, 1) == SRT_OK) {
			tool_print_sizes(&c, again, sizeof(again));
			FUZZ_CHECK(strcmp(text, again) == 0);
			FUZZ_CHECK(srt_decoder_ntensors(&c) > 0 && srt_decoder_nparams(&c, 0) > 0 &&
				   srt_decoder_nparams(&c, 1) >= 0);
		} else {
			FUZZ_CHECK(srt_error_last()[0] != '\0');
		}
	}
	free(text);
	return 0;
}
