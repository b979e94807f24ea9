/* SPDX-License-Identifier: BSD-3-Clause */
/* --save of a model of Hugging Face: a folder that transformers loads; of adapters: one of PEFT. */
#include "tools/train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/try.h"
#include "tools/checkpoint_path.h"
#include "tools/model_folder.h"

/* The dtype of the weights in the folder. */
static srt_dtype_t find_dtype(const trainer_t *t)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16 };

	return t->opt.save_dtype >= 0 ? dtypes[t->opt.save_dtype] :
					train_options_precision(&t->opt).stored;
}

/* About the bytes of the folder. Adapters are not declared yet: r rows and columns of a matrix. */
static int64_t estimate_nbytes(const trainer_t *t)
{
	if (t->lora.lora != NULL)
		return 4 * t->lora.lora->r * 7 * t->config.layers * 2 * t->config.width;
	return srt_decoder_nparams(&t->config, 0) * (int64_t)(srt_dtype_bits(find_dtype(t)) / 8) +
	       256 * srt_decoder_ntensors(&t->config) + (int64_t)strlen(t->model.config_text);
}

/* Allocates the space in a file of the folder, and removes it. @return 0, or errno. */
static int try_file(const char *folder, int64_t nbytes)
{
	char path[2048 + 16];
	int fd, error;

	snprintf(path, sizeof(path), "%s/.try-XXXXXX", folder);
	fd = mkstemp(path);
	if (fd < 0)
		return errno;
	unlink(path);
	error = trainer_try_space(fd, nbytes);
	close(fd);
	return error == EFBIG ? 0 : error; /* the folder may have several files */
}

int trainer_try_save_folder(trainer_t *t, int *error)
{
	const char *folder = t->opt.save;
	const int64_t nbytes = estimate_nbytes(t);
	struct stat st;
	int is_new;

	*error = 0;
	if (!*folder || strlen(folder) > 2000)
		return tool_why_usage(&t->why,
				      "cannot write --save '%s': this is not the name of a folder",
				      folder);
	if ((stat(folder, &st) == 0 && !S_ISDIR(st.st_mode)) || tool_has_manifest(folder))
		return tool_why_usage(
			&t->why,
			"cannot write --save %s: it exists and is %s; %s saved to a folder", folder,
			tool_has_manifest(folder) ? "a checkpoint" : "no folder",
			t->lora.lora != NULL ? "adapters are" : "a model of Hugging Face is");
	is_new = mkdir(folder, 0777) == 0;
	*error = is_new || errno == EEXIST ? try_file(folder, nbytes) : errno;
	if (is_new)
		rmdir(folder);
	if (*error == 0)
		return 0;
	return tool_why_system(&t->why, *error,
			       "cannot write --save %s: cannot create a file of %" PRId64
			       " bytes in it",
			       folder, nbytes);
}

/* Files apart from weights. Without a folder that training began with there is no tokenizer. */
static srt_status_t write_others(const trainer_t *t, const char *folder)
{
	SRT_TRY(tool_write_config(folder, t->model.config_text, find_dtype(t)));
	return t->model.folder != NULL ? tool_copy_model_files(t->model.folder, folder) : SRT_OK;
}

srt_status_t trainer_save_folder(trainer_t *t, const char *folder)
{
	const srt_family_file_t file = { .family = t->model.family, .config = &t->config };
	const srt_file_names_t names = srt_family_names(&file);
	srt_folder_options_t options = SRT_FOLDER_OPTIONS_INIT;
	int status = SRT_OK;

	options.names = &names;
	options.dtype = find_dtype(t);
	options.max_nbytes = (size_t)t->opt.max_shard_size;
	SRT_TRY(trainer_check_save(t,
				   srt_engine_save_folder(t->engine, folder, &options, t->stream)));
	if (t->rank == 0)
		status = (int)write_others(t, folder);
	SRT_TRY(trainer_ask_rank0(t, &status));
	return trainer_check_save(t, (srt_status_t)status);
}

srt_status_t trainer_save_adapter(trainer_t *t, const char *folder)
{
	const srt_lora_save_t options = { .family = t->model.family, .base = t->opt.init };
	int status = (int)srt_decoder_save_lora(t->decoder, &options, t->rank == 0 ? folder : NULL,
						t->stream);

	SRT_TRY(trainer_ask_rank0(t, &status));
	return trainer_check_save(t, (srt_status_t)status);
}
