/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context: checks the configuration, joins the job, opens the device and creates the world
 * communicator. In this order a malformed variable is reported before any rank waits for another.
 * An option that is set overrides its environment variable.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "collectives/bootstrap/bootstrap.h"

#include <shardrt/coll.h>

#define MAX_THREADS 4096

struct srt_context {
	srt_bootstrap_t *bootstrap;
	srt_device_t *device;
	pthread_mutex_t host_lock; /* protects: */
	srt_device_t *host;        /* NULL: not opened yet, or `device` */
	int threads;               /* of a CPU device; 0: choose */
	char bind[8];              /* option bind; "": SHARDRT_BIND */
	srt_comm_t *world;
};

/* The program's own context: its backend and its device replace those of other options. */
static srt_status_t check_native(const srt_context_options_t *options)
{
	const srt_native_device_t *native = options->native;

	if (native == NULL)
		return SRT_OK;
	if (native->backend == NULL || native->context == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_context_create: native.%s is NULL",
				native->backend != NULL ? "context" : "backend");
	if (options->device != NULL ||
	    (options->backend != NULL && strcmp(options->backend, native->backend) != 0))
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"srt_context_create: the option native names the device, of backend "
			"\"%s\"; leave the option %s NULL",
			native->backend, options->device != NULL ? "device" : "backend");
	return SRT_OK;
}

static srt_status_t check_options(const srt_context_options_t *options)
{
	if (options->threads < 0 || options->threads > MAX_THREADS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_context_create: threads is %d, must be 0 (choose) to %d",
				options->threads, MAX_THREADS);
	if (!(options->timeout_s >= 0) || isinf(options->timeout_s))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_context_create: timeout_s is %g, must be a number of seconds, "
				"or 0 for SHARDRT_TIMEOUT",
				options->timeout_s);
	if ((unsigned)options->numerics > SRT_NUMERICS_FAST)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_context_create: numerics is %d, which is not a srt_numerics_t",
				(int)options->numerics);
	if (options->bind != NULL && strcmp(options->bind, "auto") != 0 &&
	    strcmp(options->bind, "no") != 0 && strcmp(options->bind, "yes") != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_context_create: bind is \"%s\", must be auto, no or yes",
				options->bind);
	return check_native(options);
}

static srt_numerics_t choose_numerics(const srt_context_options_t *options)
{
	const char *text = srt_config_string("SHARDRT_NUMERICS");

	if (options->numerics != SRT_NUMERICS_DEFAULT)
		return options->numerics;
	return strcmp(text, "fast") == 0 ? SRT_NUMERICS_FAST : SRT_NUMERICS_EXACT;
}

static const char *choose_backend(const srt_context_options_t *options)
{
	if (options->native != NULL)
		return options->native->backend;
	return options->backend != NULL ? options->backend : srt_config_string("SHARDRT_BACKEND");
}

/* Refuses a backend that is not installed before any rank waits for another. */
static srt_status_t check_backend(const char *name)
{
	const srt_backend_t *backend;

	return srt_backend_is_auto(name) ? SRT_OK : srt_backend_lookup(name, &backend);
}

static srt_device_request_t make_request(const srt_context_t *context, srt_numerics_t numerics,
					 int threads)
{
	return (srt_device_request_t){
		.selector = "",
		.local_rank = srt_bootstrap_local_rank(context->bootstrap),
		.local_size = srt_bootstrap_local_size(context->bootstrap),
		.threads = threads,
		.bind = context->bind[0] ? context->bind : NULL,
		.exact = numerics != SRT_NUMERICS_FAST,
		.fast = numerics == SRT_NUMERICS_FAST,
	};
}

static srt_status_t open_device(srt_context_t *context, const srt_context_options_t *options)
{
	srt_numerics_t numerics = choose_numerics(options);
	srt_device_request_t request;

	context->threads =
		options->threads ? options->threads : (int)srt_config_int("SHARDRT_THREADS");
	snprintf(context->bind, sizeof(context->bind), "%s",
		 options->bind != NULL ? options->bind : "");
	request = make_request(context, numerics, context->threads);
	request.selector =
		options->device != NULL ? options->device : srt_config_string("SHARDRT_DEVICE");
	request.native = options->native;
	SRT_TRY(srt_device_open(choose_backend(options), &request, numerics, &context->device));
	if (numerics == SRT_NUMERICS_FAST && !context->device->caps.has_fast)
		srt_log(SRT_LOG_INFO,
			"numerics fast: the %s backend has no faster kernels than the exact "
			"ones, which it uses",
			context->device->backend->name);
	return SRT_OK;
}

srt_status_t srt_context_create(const srt_context_options_t *given, srt_context_t **out)
{
	srt_context_options_t options = SRT_CONTEXT_OPTIONS_INIT;
	srt_native_device_t native = SRT_NATIVE_DEVICE_INIT;
	srt_context_t *context;
	srt_status_t status;

	SRT_TRY(srt_check_not_null(out, __func__, "context"));
	SRT_TRY(srt_struct_read(&options, sizeof(options), given, "srt_context_options_t"));
	if (options.native != NULL) {
		SRT_TRY(srt_struct_read(&native, sizeof(native), options.native,
					"srt_native_device_t"));
		options.native = &native;
	}
	SRT_TRY(check_options(&options));
	SRT_TRY(srt_config_check_all());
	SRT_TRY(check_backend(choose_backend(&options)));
	context = srt_calloc(1, sizeof(*context), "a context");
	if (context == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_bootstrap_join(&options, &context->bootstrap);
	if (status != SRT_OK)
		goto free_context;
	status = open_device(context, &options);
	if (status != SRT_OK) {
		status = srt_bootstrap_fail(context->bootstrap, "opening the device", status,
					    srt_error_last());
		goto leave_job;
	}
	status = srt_comm_create_world(context->bootstrap, context->device, &context->world);
	if (status != SRT_OK)
		goto close_device;
	pthread_mutex_init(&context->host_lock, NULL);
	*out = context;
	return SRT_OK;

close_device:
	srt_device_close(context->device);
leave_job:
	srt_bootstrap_leave(context->bootstrap);
free_context:
	free(context);
	return status;
}

void srt_context_destroy(srt_context_t *context)
{
	if (context == NULL || srt_device_is_inherited(context->device))
		return;
	srt_comm_destroy(context->world);
	srt_device_close(context->host);
	srt_device_close(context->device);
	pthread_mutex_destroy(&context->host_lock);
	srt_bootstrap_leave(context->bootstrap);
	free(context);
}

int srt_context_rank(const srt_context_t *context)
{
	return context != NULL ? srt_bootstrap_rank(context->bootstrap) : -1;
}

int srt_context_world_size(const srt_context_t *context)
{
	return context != NULL ? srt_bootstrap_world_size(context->bootstrap) : 0;
}

int srt_context_local_rank(const srt_context_t *context)
{
	return context != NULL ? srt_bootstrap_local_rank(context->bootstrap) : -1;
}

int srt_context_local_size(const srt_context_t *context)
{
	return context != NULL ? srt_bootstrap_local_size(context->bootstrap) : 0;
}

srt_device_t *srt_context_device(srt_context_t *context)
{
	return context != NULL ? context->device : NULL;
}

srt_status_t srt_context_host(srt_context_t *context, srt_device_t **host)
{
	srt_status_t status = SRT_OK;

	SRT_NOT_NULL(context);
	SRT_NOT_NULL(host);
	if (context->device->caps.host_memory) {
		*host = context->device;
		return SRT_OK;
	}
	pthread_mutex_lock(&context->host_lock);
	if (context->host == NULL) {
		const srt_numerics_t numerics = context->device->numerics;
		const srt_device_request_t request =
			make_request(context, numerics, context->threads);

		status = srt_device_open("cpu", &request, numerics, &context->host);
	}
	if (status == SRT_OK)
		*host = context->host;
	pthread_mutex_unlock(&context->host_lock);
	return status;
}

srt_comm_t *srt_context_world(srt_context_t *context)
{
	return context != NULL ? context->world : NULL;
}

srt_numerics_t srt_context_numerics(const srt_context_t *context)
{
	return context != NULL ? context->device->numerics : SRT_NUMERICS_DEFAULT;
}
