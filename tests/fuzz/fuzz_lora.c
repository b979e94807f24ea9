/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the adapter_config.json of a folder of PEFT, which is then matched with a small model. */
#include "base/base.h"
#include <shardrt/models/lora.h>
#include "tests/fuzz/fuzz.h"

static void check_message(void)
{
	const char *at = srt_error_last();

	for (size_t n; *at; at += n) { /* it can be shown on a terminal */
		n = srt_utf8_length(at);
		FUZZ_CHECK(n > 0 && (unsigned char)*at >= 0x20 && *at != 0x7f);
	}
	FUZZ_CHECK(at != srt_error_last());
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	char *text = fuzz_text(input, nbytes);
	unsigned char matches[2 * SRT_DECODER_PARTS];
	srt_decoder_config_t c;
	srt_lora_t *lora;

	FUZZ_CHECK(srt_decoder_preset("nano", &c) == SRT_OK);
	c.layers = 2;
	if (srt_lora_parse(text, nbytes, "adapter_config.json", &lora) == SRT_OK) {
		FUZZ_CHECK(lora->r >= 1 && lora->r <= SRT_LORA_MAX_R);
		FUZZ_CHECK(lora->pattern == NULL || lora->ntargets == 0);
		if (srt_lora_match(lora, &c, matches) != SRT_OK)
			check_message();
		srt_lora_destroy(lora);
	} else {
		check_message();
	}
	free(text);
	return 0;
}
