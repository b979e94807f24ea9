/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The features that optional packages give (include/shardrt/version.h): the one table of what each
 * needs, and whether this build has it on this machine. Called by shardrt-info and shardrt-train.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <string.h>

#include <shardrt/backend.h>
#include <shardrt/version.h>

#include "base/base.h"
#include "collectives/bootstrap/bootstrap.h"
#include "collectives/comm.h"
#include "device/backend.h"

#ifdef HAVE_HWLOC
#define BINDING true
#else
#define BINDING false
#endif
#ifdef HAVE_XXHASH
#define HASH true
#else
#define HASH false
#endif
#if defined(HAVE_XXHASH) && defined(HAVE_JANSSON)
#define CHECKPOINTS true
#else
#define CHECKPOINTS false
#endif
#if defined(HAVE_JANSSON) && defined(HAVE_PCRE2) && defined(HAVE_UTF8PROC)
#define TOKENIZERS true
#else
#define TOKENIZERS false
#endif
#ifdef HAVE_SODIUM
#define LINKS true
#else
#define LINKS false
#endif

/* The last error says why a backend has no device here. */
static srt_status_t probe_backend(const char *name)
{
	srt_backend_info_t info = SRT_BACKEND_INFO_INIT;

	for (size_t i = 0; i < srt_backend_count(); i++) {
		if (srt_backend_get_info(i, &info) == SRT_OK && strcmp(info.name, name) == 0)
			break;
	}
	return info.ndevices > 0 ? SRT_OK : srt_fail(SRT_ERR_NOT_FOUND, "%s", info.why_none);
}

static srt_status_t probe_opencl(void)
{
	return probe_backend("opencl");
}

static srt_status_t probe_cuda(void)
{
	return probe_backend("cuda");
}

static const struct {
	const char *name, *packages, *command;
	bool built;
	srt_status_t (*probe)(void); /* of what is loaded at run time, instead of `built` */
} features[] = {
	[SRT_FEATURE_BINDING] = { "ranks bound to cores", "libhwloc-dev", "shardrt-info", BINDING,
				  NULL },
	[SRT_FEATURE_HASH] = { "hashes of parameters", "libxxhash-dev", "shardrt-train --hash",
			       HASH, NULL },
	[SRT_FEATURE_CHECKPOINTS] = { "sharded checkpoints", "libjansson-dev libxxhash-dev",
				      "shardrt-train --checkpoint DIR", CHECKPOINTS, NULL },
	[SRT_FEATURE_LINKS] = { "jobs of several nodes", "libsodium-dev",
				"shardrun --hosts HOST,HOST", LINKS, NULL },
	[SRT_FEATURE_TOKENIZERS] = { "Hugging Face tokenizers",
				     "libjansson-dev libpcre2-dev libutf8proc-dev",
				     "shardrt-tokens encode --tokenizer FOLDER", TOKENIZERS, NULL },
	[SRT_FEATURE_UCX] = { "collectives between nodes", "libucx-dev",
			      "shardrun --hosts HOST,HOST", false, srt_ucx_probe },
	[SRT_FEATURE_PMIX] = { "ranks of mpirun and srun", "libpmix-dev",
			       "mpirun -n 2 shardrt-train", false, srt_bootstrap_probe_pmix },
	[SRT_FEATURE_ONEDNN] = { "fast bf16 products", "libdnnl-dev",
				 "shardrt-train --numerics fast", false, srt_cpu_onednn_probe },
	[SRT_FEATURE_OPENCL] = { "OpenCL devices", "ocl-icd-opencl-dev pocl-opencl-icd",
				 "SHARDRT_BACKEND=opencl shardrt-train", false, probe_opencl },
	[SRT_FEATURE_CUDA] = { "NVIDIA GPUs", "the CUDA toolkit and a driver",
			       "SHARDRT_BACKEND=cuda shardrt-train", false, probe_cuda },
};

size_t srt_feature_count(void)
{
	return SRT_ARRAY_LEN(features);
}

srt_status_t srt_feature_get_info(srt_feature_t feature, srt_feature_info_t *info)
{
	srt_feature_info_t full = SRT_FEATURE_INFO_INIT;
	const size_t i = (size_t)feature;
	srt_error_text_t before;

	SRT_NOT_NULL(info);
	if (i >= SRT_ARRAY_LEN(features))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"there is no feature number %zu, only %zu", i,
				SRT_ARRAY_LEN(features));
	full.name = features[i].name;
	full.packages = features[i].packages;
	full.command = features[i].command;
	if (features[i].built) {
		full.state = SRT_FEATURE_BUILT;
	} else if (features[i].probe == NULL) {
		snprintf(full.why_missing, sizeof(full.why_missing), "built without %s",
			 features[i].packages);
	} else {
		srt_error_save(&before);
		if (features[i].probe() == SRT_OK)
			full.state = SRT_FEATURE_FOUND;
		else
			snprintf(full.why_missing, sizeof(full.why_missing), "%s",
				 srt_error_last());
		srt_error_restore(&before); /* this call has not failed */
	}
	return srt_struct_write(info, &full, sizeof(full), "srt_feature_info_t");
}
