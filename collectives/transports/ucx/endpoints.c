/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The endpoints of the worker, and its lock.
 *
 * Error mode: endpoints have UCP_ERR_HANDLING_MODE_PEER. A connection that is lost then fails its
 * messages, and a forced close ends the messages of a rank that is dead. Shared memory allows this
 * mode with MM_ERROR_HANDLING only. Deaths are found by the control channel: UCX finds them late,
 * or, over shared memory, only with a keepalive.
 */
#include "collectives/transports/ucx/internal.h"

void srt_ucx_lock(srt_ucx_worker_t *w)
{
	if (pthread_mutex_trylock(&w->mutex) != 0) {
		w->nlocking++;
		pthread_mutex_lock(&w->mutex);
		w->nlocking--;
	}
	srt_ucx_nlocks++;
}

void srt_ucx_unlock(srt_ucx_worker_t *w)
{
	srt_ucx_nlocks--;
	pthread_mutex_unlock(&w->mutex);
}

static void handle_loss(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	srt_ucx_endpoint_t *endpoint = arg;

	(void)ep;
	endpoint->failure = status;
}

ucs_status_t srt_ucx_endpoint(srt_ucx_worker_t *w, int world_rank, ucp_ep_h *ep)
{
	srt_ucx_endpoint_t *endpoint = &w->endpoints[world_rank];
	const ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = endpoint->address,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { .cb = handle_loss, .arg = endpoint },
	};
	ucs_status_t status = endpoint->failure;

	if (status == UCS_OK && endpoint->ep == NULL)
		status = w->ucx->ucp_ep_create(w->worker, &params, &endpoint->ep);
	if (status != UCS_OK && endpoint->failure == UCS_OK)
		endpoint->failure = status;
	*ep = endpoint->ep;
	return status;
}

void srt_ucx_close_endpoint(srt_ucx_worker_t *w, int world_rank)
{
	const ucp_request_param_t force = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	srt_ucx_endpoint_t *endpoint = &w->endpoints[world_rank];
	ucs_status_ptr_t request;

	if (endpoint->failure == UCS_OK)
		endpoint->failure = UCS_ERR_CANCELED;
	if (endpoint->ep == NULL)
		return;
	request = w->ucx->ucp_ep_close_nbx(endpoint->ep, &force);
	endpoint->ep = NULL;
	/* A close that is not complete ends with the worker at the latest. */
	if (UCS_PTR_IS_PTR(request))
		w->ucx->ucp_request_free(request);
}
