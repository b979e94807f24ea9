/* SPDX-License-Identifier: BSD-3-Clause */
/* See launcher.h. */
#include "collectives/bootstrap/launcher.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "collectives/bootstrap/address.h"
#include "collectives/bootstrap/pmix.h"
#include "collectives/bootstrap/wire.h"

/* Longest name of a host in DNS. */
#define MAX_HOST 253

/* What a launcher calls the four numbers. */
typedef struct numbers {
	const char *rank, *size, *local_rank, *local_size;
} numbers_t;

/* local_rank and local_size are -1 if they are not set. */
static srt_status_t set_place(srt_place_t *place, const numbers_t *names, int rank, int size,
			      int local_rank, int local_size)
{
	if (rank >= size)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s=%d is not below %s=%d", names->rank,
				rank, names->size, size);
	if (rank < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s=%d is negative", names->rank, rank);
	if ((local_rank < 0) != (local_size < 0) || local_size > size || local_size == 0 ||
	    (local_size > 0 && local_rank >= local_size))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s=%d, %s=%d do not fit %s=%d (-1: not set)", names->local_rank,
				local_rank, names->local_size, local_size, names->size, size);
	place->rank = rank;
	place->world_size = size;
	place->local_rank = local_rank < 0 ? 0 : local_rank;
	place->local_size = local_size < 0 ? 0 : local_size;
	return SRT_OK;
}

static srt_status_t share_by_program(const srt_place_t *place, uint32_t generation, void *data,
				     size_t nbytes, double timeout_s)
{
	const srt_context_options_t *options = place->arg;
	int result = options->broadcast(options->broadcast_arg, data, nbytes);

	(void)generation;
	(void)timeout_s;
	return result == 0 ? SRT_OK :
			     srt_fail(SRT_ERR_SYSTEM,
				      "rank %d of %d cannot join: the option broadcast returned %d",
				      place->rank, place->world_size, result);
}

static srt_status_t find_program(const srt_context_options_t *options, srt_place_t *place)
{
	const numbers_t names = { "srt_context_create: rank", "world_size", "", "" };

	if (options->bootstrap != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_context_create: the options bootstrap (\"%s\") and world_size "
				"(%d) exclude each other",
				options->bootstrap, options->world_size);
	if (options->broadcast == NULL && options->world_size > 1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_context_create: world_size is %d, but broadcast is NULL, so "
				"the ranks cannot meet",
				options->world_size);
	SRT_TRY(set_place(place, &names, options->rank, options->world_size, -1, -1));
	place->launcher = "the program";
	place->share = options->broadcast != NULL ? share_by_program : NULL;
	place->arg = options;
	return SRT_OK;
}

/* SHARDRT_BOOTSTRAP=unix:@NAME or tcp:HOST:PORT, with the variables that shardrun sets. */
static srt_status_t find_address(const char *address, srt_place_t *place)
{
	const numbers_t names = { "SHARDRT_RANK", "SHARDRT_WORLD_SIZE", "SHARDRT_LOCAL_RANK",
				  "SHARDRT_LOCAL_SIZE" };
	const bool tcp = strncmp(address, "tcp:", 4) == 0;
	const char *text;
	int is_set = 1;

	if (!tcp && strncmp(address, "unix:@", 6) != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"bootstrap address \"%.300s\" is not of the form unix:@NAME or "
				"tcp:HOST:PORT, and none of none, pmix and torchrun; start the "
				"program with shardrun, or clear SHARDRT_BOOTSTRAP to run one rank "
				"alone",
				address);
	if (strlen(address) >= sizeof(place->address))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"bootstrap address \"%.300s\" is too long", address);
	if (tcp)
		SRT_TRY(srt_address_check(address + 4));
	if (tcp) /* the ranks find out by themselves which of them share a node */
		SRT_TRY(srt_config_value("SHARDRT_LOCAL_SIZE", &text, &is_set));
	SRT_TRY(set_place(place, &names, (int)srt_config_int("SHARDRT_RANK"),
			  (int)srt_config_int("SHARDRT_WORLD_SIZE"),
			  is_set ? (int)srt_config_int("SHARDRT_LOCAL_RANK") : -1,
			  is_set ? (int)srt_config_int("SHARDRT_LOCAL_SIZE") : -1));
	place->launcher = tcp ? "SHARDRT_BOOTSTRAP" : "shardrun";
	snprintf(place->address, sizeof(place->address), "%s", address);
	/* Ranks of an earlier job or start may still listen or connect. */
	snprintf(place->job, sizeof(place->job), "tcp-%016" PRIx64,
		 srt_hash64((uint64_t)srt_config_int("SHARDRT_RESTART_COUNT"), address,
			    strlen(address)));
	return SRT_OK;
}

static void hash_variable(uint64_t *hash, const char *name)
{
	const char *value = srt_config_foreign(name);

	if (value != NULL)
		*hash = srt_hash64(*hash, value, strlen(value));
}

/* The job's name of torchrun's variables that all ranks have in common. */
static void name_torchrun_job(srt_place_t *place, bool one_node)
{
	uint64_t hash = (uint64_t)place->world_size;

	hash_variable(&hash, "MASTER_ADDR");
	hash_variable(&hash, "MASTER_PORT");
	hash_variable(&hash, "TORCHELASTIC_RUN_ID");
	/* Each node's torchrun counts the restarts that its own ranks have caused. */
	if (one_node)
		hash_variable(&hash, "TORCHELASTIC_RESTART_COUNT");
	snprintf(place->job, sizeof(place->job), "torchrun-%016" PRIx64, hash);
}

static srt_status_t find_torchrun(srt_place_t *place)
{
	const numbers_t names = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" };
	const char *master = srt_config_foreign("MASTER_ADDR");
	int rank, size, local_rank, local_size;
	bool one_node;

	SRT_TRY(srt_config_foreign_int("RANK", &rank));
	SRT_TRY(srt_config_foreign_int("WORLD_SIZE", &size));
	SRT_TRY(srt_config_foreign_int("LOCAL_RANK", &local_rank));
	SRT_TRY(srt_config_foreign_int("LOCAL_WORLD_SIZE", &local_size));
	if (rank < 0 || size < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s is not set in the environment, but torchrun sets RANK and "
				"WORLD_SIZE; set both, or SHARDRT_BOOTSTRAP=none for a job of one "
				"rank",
				rank < 0 ? "RANK" : "WORLD_SIZE");
	if (local_size < 0)
		local_rank = -1;
	SRT_TRY(set_place(place, &names, rank, size, local_rank, local_size));
	one_node = local_size == size;
	if (one_node && local_rank != rank)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"LOCAL_RANK=%d is not RANK=%d, although all %d ranks share a node "
				"by LOCAL_WORLD_SIZE",
				local_rank, rank, size);
	place->launcher = "torchrun";
	name_torchrun_job(place, one_node);
	if (one_node || size == 1)
		return SRT_OK;
	if (master == NULL || strlen(master) > MAX_HOST)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"WORLD_SIZE=%d with ranks on several nodes needs MASTER_ADDR, the "
				"host of rank 0; set LOCAL_RANK and LOCAL_WORLD_SIZE if all ranks "
				"share a node",
				size);
	/* Not MASTER_PORT, where torchrun or the program may listen. */
	snprintf(place->address, sizeof(place->address),
		 strchr(master, ':') != NULL ? "tcp:[%s]:%d" : "tcp:%s:%d", master,
		 (int)srt_config_int("SHARDRT_PORT"));
	return SRT_OK;
}

/* PMIx, which has to agree with torchrun's variables if there are some, unless it is forced. */
static srt_status_t find_pmix(srt_place_t *place, bool forced)
{
	int rank, size, pmix_rank;

	SRT_TRY(srt_config_foreign_int("PMIX_RANK", &pmix_rank));
	SRT_TRY(srt_config_foreign_int("RANK", &rank));
	SRT_TRY(srt_config_foreign_int("WORLD_SIZE", &size));
	if (pmix_rank < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"SHARDRT_BOOTSTRAP=pmix, but PMIX_RANK is not set: start the ranks "
				"with mpirun of Open MPI or srun --mpi=pmix");
	place->world_size = size;
	if (forced || size < 0 || rank == pmix_rank)
		SRT_TRY(srt_pmix_find(place));
	if (!forced && size >= 0 && (rank != pmix_rank || size != place->world_size))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"mpirun or srun started this process as rank %d, torchrun as rank "
				"%d of %d; set SHARDRT_BOOTSTRAP to pmix or torchrun",
				pmix_rank, rank, size);
	return SRT_OK;
}

/* A launcher that names several processes, in a way that tells no more; or none. */
static srt_status_t find_alone(void)
{
	static const char *const foreign[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
					       "SLURM_STEP_NUM_TASKS" };
	const int64_t world_size = srt_config_int("SHARDRT_WORLD_SIZE");
	int size;

	if (world_size > 1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"SHARDRT_WORLD_SIZE=%d, but SHARDRT_BOOTSTRAP is not set; start "
				"the ranks with shardrun, or clear SHARDRT_WORLD_SIZE to run one "
				"rank alone",
				(int)world_size);
	for (size_t i = 0; i < SRT_ARRAY_LEN(foreign); i++) {
		SRT_TRY(srt_config_foreign_int(foreign[i], &size));
		if (size > 1)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s=%d, but PMIX_RANK is not set: the launcher does not "
					"offer PMIx; start the ranks with srun --mpi=pmix, mpirun "
					"of Open MPI or shardrun, or set SHARDRT_BOOTSTRAP=none "
					"for jobs of one rank each",
					foreign[i], size);
	}
	return SRT_OK;
}

static srt_status_t find_place(const srt_context_options_t *options, srt_place_t *place)
{
	const char *text = options->bootstrap;

	if (options->world_size != 0 || options->broadcast != NULL)
		return find_program(options, place);
	if (text == NULL && srt_config_is_empty("SHARDRT_BOOTSTRAP"))
		text = "none";
	if (text == NULL)
		text = srt_config_foreign("SHARDRT_BOOTSTRAP");
	if (text == NULL && srt_config_int("SHARDRT_WORLD_SIZE") == 1) {
		if (srt_config_foreign("PMIX_RANK") != NULL)
			return find_pmix(place, false);
		if (srt_config_foreign("WORLD_SIZE") != NULL)
			return find_torchrun(place);
	}
	if (text == NULL)
		return find_alone();
	if (text[0] == '\0' || strcmp(text, "none") == 0)
		return SRT_OK;
	if (strcmp(text, "pmix") == 0)
		return find_pmix(place, true);
	if (strcmp(text, "torchrun") == 0)
		return find_torchrun(place);
	return find_address(text, place);
}

srt_status_t srt_launcher_find(const srt_context_options_t *options, srt_place_t *place)
{
	const char *token = srt_config_string("SHARDRT_TOKEN");

	*place = (srt_place_t){ .launcher = "", .world_size = 1, .local_size = 1 };
	if (strlen(token) >= sizeof(place->token))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"SHARDRT_TOKEN has %zu characters; at most %zu are allowed",
				strlen(token), sizeof(place->token) - 1);
	snprintf(place->token, sizeof(place->token), "%s", token);
	SRT_TRY(find_place(options, place));
	if (place->world_size > SRT_WIRE_MAX_WORLD)
		return srt_fail(SRT_ERR_UNSUPPORTED, "a job of %d ranks: at most %d are supported",
				place->world_size, SRT_WIRE_MAX_WORLD);
	if (place->local_size > SRT_WIRE_MAX_LOCAL)
		return srt_fail(
			SRT_ERR_UNSUPPORTED,
			"%d ranks share the node of rank %d: at most %d can; start the job on "
			"more nodes",
			place->local_size, place->rank, SRT_WIRE_MAX_LOCAL);
	return SRT_OK;
}
