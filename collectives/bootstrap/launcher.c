/* SPDX-License-Identifier: BSD-3-Clause */
/* What started this process: see launcher.h. */
#include "collectives/bootstrap/launcher.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "collectives/bootstrap/wire.h"

srt_status_t srt_launcher_find(const srt_context_options_t *options, srt_place_t *place)
{
	const char *address = options->bootstrap != NULL ? options->bootstrap :
							   srt_config_string("SHARDRT_BOOTSTRAP");

	*place = (srt_place_t){ .launcher = "", .world_size = 1, .local_size = 1 };
	if (address[0] == '\0')
		return SRT_OK;
	place->launcher = "shardrun";
	place->rank = (int)srt_config_int("SHARDRT_RANK");
	place->world_size = (int)srt_config_int("SHARDRT_WORLD_SIZE");
	place->local_rank = (int)srt_config_int("SHARDRT_LOCAL_RANK");
	place->local_size = (int)srt_config_int("SHARDRT_LOCAL_SIZE");
	snprintf(place->address, sizeof(place->address), "%s", address);
	snprintf(place->token, sizeof(place->token), "%s", srt_config_string("SHARDRT_TOKEN"));
	snprintf(place->job, sizeof(place->job), "test%s", strrchr(address, ':'));
	if (strcmp(address, "node") == 0)
		place->address[0] = 0;
	return SRT_OK;
}
