/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of a group: each adds itself to the thread's group. */
#include "tests/fakes/fake_nccl/calls.h"

ncclResult_t ncclSend(const void *src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return fake_nccl_add_call("ncclSend", comm, stream, type,
				  (wire_call_t){ .kind = WIRE_SEND,
						 .src = src,
						 .nbytes = count,
						 .peer = peer });
}

ncclResult_t ncclRecv(void *dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return fake_nccl_add_call("ncclRecv", comm, stream, type,
				  (wire_call_t){ .kind = WIRE_RECV,
						 .dst = dst,
						 .nbytes = count,
						 .peer = peer });
}

ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
			   ncclComm_t comm, cudaStream_t stream)
{
	return fake_nccl_add_call("ncclBroadcast", comm, stream, type,
				  (wire_call_t){ .kind = WIRE_BCAST,
						 .src = src,
						 .dst = dst,
						 .nbytes = count,
						 .peer = root });
}

ncclResult_t ncclAllGather(const void *src, void *dst, size_t count, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t stream)
{
	return fake_nccl_add_call("ncclAllGather", comm, stream, type,
				  (wire_call_t){ .kind = WIRE_GATHER,
						 .src = src,
						 .dst = dst,
						 .nbytes = count });
}

ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t count, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	if (op != ncclSum || type != ncclFloat32)
		fake_nccl_complain("a sum that is not used");
	return fake_nccl_add_call("ncclReduceScatter", comm, stream, type,
				  (wire_call_t){ .kind = WIRE_SCATTER,
						 .src = src,
						 .dst = dst,
						 .nbytes = count });
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	if (op != ncclSum || type != ncclFloat32)
		fake_nccl_complain("a sum that is not used");
	return fake_nccl_add_call("ncclAllReduce", comm, stream, type,
				  (wire_call_t){ .kind = WIRE_REDUCE,
						 .src = src,
						 .dst = dst,
						 .nbytes = count });
}
