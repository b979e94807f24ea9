/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that processes share: allocating the pages of a memfd, and checking a peer's.
 */
#ifndef SRT_BASE_MEMFD_H
#define SRT_BASE_MEMFD_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Bytes of one fallocate(). Before Linux 6.10 any signal ends a call on a memfd with EINTR and
 * undoes its work, so a call must be short. */
#define SRT_MEMFD_PIECE ((size_t)64 << 20)

/* Allocates the pages now: an error here instead of SIGBUS at the first use. False: see errno. */
static inline bool srt_memfd_allocate(int fd, size_t nbytes)
{
	for (size_t at = 0; at < nbytes; at += SRT_MEMFD_PIECE) {
		size_t n = nbytes - at < SRT_MEMFD_PIECE ? nbytes - at : SRT_MEMFD_PIECE;

		while (fallocate(fd, 0, (off_t)at, (off_t)n) != 0) {
			if (errno != EINTR)
				return false;
		}
	}
	return true;
}

/* Seals the size, so that no process can truncate the memory that others have mapped. */
static inline bool srt_memfd_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* Whether the descriptor is sealed memory of at least nbytes: access to it never raises SIGBUS. */
static inline bool srt_memfd_is_sealed(int fd, uint64_t nbytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
	       st.st_size >= 0 && (uint64_t)st.st_size >= nbytes;
}

#endif
