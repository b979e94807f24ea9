/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX, libucp.so.0, loaded at run time: a table of pointers to the functions in use. ucp.h is
 * included only for its types, and nothing is linked.
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_UCX_LIBRARY_H
#define SRT_COLLECTIVES_TRANSPORTS_UCX_LIBRARY_H

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include "base/base.h"

#define SRT_UCX_FUNCTIONS(F)                                                                       \
	F(ucp_get_version)                                                                         \
	F(ucp_config_read)                                                                         \
	F(ucp_config_modify)                                                                       \
	F(ucp_config_release)                                                                      \
	F(ucp_init_version)                                                                        \
	F(ucp_cleanup)                                                                             \
	F(ucp_worker_create)                                                                       \
	F(ucp_worker_destroy)                                                                      \
	F(ucp_worker_get_address)                                                                  \
	F(ucp_worker_release_address)                                                              \
	F(ucp_worker_get_efd)                                                                      \
	F(ucp_worker_arm)                                                                          \
	F(ucp_worker_signal)                                                                       \
	F(ucp_worker_progress)                                                                     \
	F(ucp_worker_flush_nbx)                                                                    \
	F(ucp_worker_set_am_recv_handler)                                                          \
	F(ucp_ep_create)                                                                           \
	F(ucp_ep_close_nbx)                                                                        \
	F(ucp_tag_send_nbx)                                                                        \
	F(ucp_tag_send_sync_nbx)                                                                   \
	F(ucp_tag_recv_nbx)                                                                        \
	F(ucp_tag_probe_nb)                                                                        \
	F(ucp_tag_msg_recv_nbx)                                                                    \
	F(ucp_am_send_nbx)                                                                         \
	F(ucp_request_cancel)                                                                      \
	F(ucp_request_check_status)                                                                \
	F(ucp_request_free)                                                                        \
	F(ucs_status_string)                                                                       \
	F(ucs_log_push_handler)

typedef struct srt_ucx_library {
#define MEMBER(name) __typeof__(name) *name;
	SRT_UCX_FUNCTIONS(MEMBER)
#undef MEMBER
	unsigned major, minor, release;
} srt_ucx_library_t;

/* How many times this thread holds the lock of a worker: what UCX logs meanwhile is ours. */
extern _Thread_local int srt_ucx_nlocks;

/* The library, loaded by the first call that succeeds. Thread-safe. */
srt_status_t srt_ucx_library(const srt_ucx_library_t **library);

#endif
