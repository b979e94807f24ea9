/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Initial values of one module: by its reset function.
 */
#include "runtime/modules/module.h"

#include "runtime/engine/engine.h"

srt_status_t srt_module_reset(srt_module_t *module, uint64_t seed, srt_stream_t *stream)
{
	srt_status_t status;

	SRT_NOT_NULL(module);
	SRT_NOT_NULL(stream);
	if (module->tree->engine == NULL)
		return srt_fail(SRT_ERR_STATE,
				"srt_module_reset: module '%s' (%s) is in no engine: call "
				"srt_engine_wrap() and srt_engine_build() first",
				module->path, module->kind);
	if (module->nparams == 0 && module->nbuffers == 0)
		return SRT_OK;
	if (module->reset == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"module '%s' (%s) has parameters or buffers and no reset function: "
				"call srt_module_set_reset(), or give srt_engine_materialize() a "
				"param_init function",
				module->path, module->kind);
	status = module->reset(module, seed, stream, module->reset_arg);
	if (status != SRT_OK)
		return srt_fail_prefix(status, "reset of module '%s' (%s): ", module->path,
				       module->kind);
	for (size_t i = 0; i < module->nbuffers; i++) {
		if (module->buffers[i].buffer != NULL)
			module->buffers[i].buffer->is_unset = false;
	}
	return SRT_OK;
}
