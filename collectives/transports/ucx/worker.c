/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The UCP worker of the process: UCX's configuration, the context and the worker.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transports/ucx/internal.h"

/* Longest wait for the messages of lost connections when the worker is destroyed. */
#define CLOSE_S 0.2

/* This library's defaults. What the user sets in the environment is not changed. */
static const struct setting {
	const char *name, *value;
	const char *variables[3]; /* the user's choice; "": no more */
	bool of_shared_memory;    /* it is unknown to UCX without that */
} settings[] = {
	/* Segments of sysv are open to the user's group. cma is slower than the copies of posix. */
	{ "TLS", "^sysv,cma", { "UCX_TLS", "", "" }, false },
	{ "MM_ERROR_HANDLING",
	  "y",
	  { "UCX_MM_ERROR_HANDLING", "UCX_POSIX_ERROR_HANDLING", "" },
	  true },
};

static bool has_word(const char *list, const char *word)
{
	for (const char *at = list;; at++) {
		const size_t n = strcspn(at, ",");

		if (n == strlen(word) && memcmp(at, word, n) == 0)
			return true;
		at += n;
		if (*at == '\0')
			return false;
	}
}

/* Whether the user's list of transports, NULL = none, allows shared memory. */
static bool allows_shared_memory(const char *list)
{
	static const char *const all[] = { "sm", "shm", "mm", "all" };
	const bool refuses = list != NULL && list[0] == '^';

	if (list == NULL)
		return true;
	for (size_t i = 0; i < SRT_ARRAY_LEN(all); i++) {
		if (has_word(list + refuses, all[i]))
			return !refuses;
	}
	return refuses || has_word(list, "posix") || has_word(list, "sysv");
}

static bool is_chosen(const struct setting *setting)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(setting->variables); i++) {
		if (setting->variables[i][0] != '\0' &&
		    srt_config_foreign(setting->variables[i]) != NULL)
			return true;
	}
	return setting->of_shared_memory && !allows_shared_memory(srt_config_foreign("UCX_TLS"));
}

static srt_status_t fail_ucx(const srt_ucx_worker_t *w, const char *call, ucs_status_t status)
{
	return srt_fail(SRT_ERR_SYSTEM, "rank %d: UCX: %s: %s", w->bootstrap->rank, call,
			w->ucx->ucs_status_string(status));
}

static srt_status_t create_context(srt_ucx_worker_t *w)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
	};
	ucp_config_t *config = NULL;
	ucs_status_t status = w->ucx->ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return fail_ucx(w, "reading its configuration", status);
	for (size_t i = 0; i < SRT_ARRAY_LEN(settings); i++) {
		if (!is_chosen(&settings[i]))
			(void)w->ucx->ucp_config_modify(config, settings[i].name,
							settings[i].value);
	}
	status = w->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
					  &w->context);
	w->ucx->ucp_config_release(config);
	w->shares_memory = allows_shared_memory(srt_config_foreign("UCX_TLS"));
	return status == UCS_OK ? SRT_OK : fail_ucx(w, "ucp_init", status);
}

static srt_status_t create_worker(srt_ucx_worker_t *w)
{
	const ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	const ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = 0,
		.cb = srt_ucx_handle_told,
		.arg = w,
	};
	ucs_status_t status = w->ucx->ucp_worker_create(w->context, &params, &w->worker);

	if (status != UCS_OK)
		return fail_ucx(w, "ucp_worker_create", status);
	status = w->ucx->ucp_worker_get_efd(w->worker, &w->efd);
	if (status != UCS_OK)
		return fail_ucx(w, "ucp_worker_get_efd", status);
	status = w->ucx->ucp_worker_set_am_recv_handler(w->worker, &handler);
	if (status != UCS_OK)
		return fail_ucx(w, "ucp_worker_set_am_recv_handler", status);
	status = w->ucx->ucp_worker_get_address(w->worker, &w->address, &w->address_nbytes);
	return status == UCS_OK ? SRT_OK : fail_ucx(w, "ucp_worker_get_address", status);
}

static srt_status_t create_objects(srt_ucx_worker_t *w)
{
	SRT_TRY(srt_ucx_library(&w->ucx));
	w->endpoints = srt_calloc((size_t)w->bootstrap->world_size, sizeof(*w->endpoints),
				  "connections of UCX");
	/* A wait tells each rank once, and later again. */
	w->told_length = 2 * (uint32_t)w->bootstrap->world_size;
	w->told = srt_calloc(w->told_length, sizeof(*w->told), "connections of UCX");
	if (w->endpoints == NULL || w->told == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(create_context(w));
	SRT_TRY(create_worker(w));
	return srt_ucx_thread_start(w);
}

srt_status_t srt_ucx_worker_acquire(srt_bootstrap_t *bootstrap, srt_ucx_worker_t **out)
{
	srt_ucx_worker_t *w = bootstrap->ucx;
	srt_status_t status;
	sigset_t all, old;

	if (w != NULL) {
		*out = w;
		return SRT_OK;
	}
	w = srt_calloc(1, sizeof(*w), "UCX");
	if (w == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	w->bootstrap = bootstrap;
	pthread_mutex_init(&w->mutex, NULL);
	srt_cond_init(&w->changed);
	srt_cond_init(&w->thread_cond);
	/* UCX creates threads. Signals are for the program's own. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	srt_ucx_lock(w);
	status = create_objects(w);
	srt_ucx_unlock(w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (status != SRT_OK) {
		srt_ucx_worker_destroy(w);
		return status;
	}
	bootstrap->ucx = w;
	*out = w;
	return SRT_OK;
}

static void close_endpoints(srt_ucx_worker_t *w)
{
	for (int r = 0; r < w->bootstrap->world_size; r++)
		srt_ucx_close_endpoint(w, r);
	srt_ucx_drive_for(w, NULL, 0);
	if (w->nsends > 0)
		srt_ucx_drive_for(w, &w->nsends, CLOSE_S);
	srt_ucx_drop_messages(w, NULL);
}

static void free_ops(srt_ucx_op_t *ops)
{
	for (srt_ucx_op_t *op = ops, *next; op != NULL; op = next) {
		next = op->next;
		free(op->iov);
		free(op);
	}
}

void srt_ucx_worker_destroy(srt_ucx_worker_t *w)
{
	if (w == NULL)
		return;
	srt_ucx_thread_stop(w);
	srt_ucx_lock(w);
	if (w->worker != NULL) {
		close_endpoints(w);
		if (w->address != NULL)
			w->ucx->ucp_worker_release_address(w->worker, w->address);
		w->ucx->ucp_worker_destroy(w->worker);
	}
	if (w->context != NULL)
		w->ucx->ucp_cleanup(w->context);
	srt_ucx_unlock(w);
	for (int r = 0; w->endpoints != NULL && r < w->bootstrap->world_size; r++)
		free(w->endpoints[r].address);
	srt_ucx_release_kept(w);
	free_ops(w->given_up);
	free_ops(w->free_ops);
	free(w->told);
	free(w->endpoints);
	pthread_cond_destroy(&w->thread_cond);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->mutex);
	free(w);
}
