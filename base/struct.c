/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Public structs whose first field is their size, as in clone3() of Linux: a program that was
 * compiled with an older or a newer header than the library's is understood.
 */
#include <string.h>

#include <shardrt/version.h>

#include "base/base.h"

static srt_status_t read_size(const void *given, const char *type, size_t *nbytes)
{
	memcpy(nbytes, given, sizeof(*nbytes));
	if (*nbytes >= sizeof(*nbytes))
		return SRT_OK;
	return srt_fail(
		SRT_ERR_INVALID_ARGUMENT,
		"%s.size is %zu: set it, and the defaults of the other fields, by the macro "
		"SRT_..._INIT next to the struct",
		type, *nbytes);
}

srt_status_t srt_struct_read(void *full, size_t full_nbytes, const void *given, const char *type)
{
	const unsigned char *bytes = given;
	size_t nbytes;

	if (given == NULL)
		return SRT_OK;
	SRT_TRY(read_size(given, type, &nbytes));
	for (size_t i = full_nbytes; i < nbytes; i++) {
		if (bytes[i] != 0)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"%s.size is %zu, and byte %zu is not zero: a field that this "
				"library, version %s, does not have",
				type, nbytes, i, srt_version_string());
	}
	memcpy(full, given, nbytes < full_nbytes ? nbytes : full_nbytes);
	memcpy(full, &full_nbytes, sizeof(full_nbytes));
	return SRT_OK;
}

srt_status_t srt_struct_check(const void *given, const char *type)
{
	size_t nbytes;

	return given != NULL ? read_size(given, type, &nbytes) : SRT_OK;
}

srt_status_t srt_struct_write(void *given, const void *full, size_t full_nbytes, const char *type)
{
	size_t nbytes;

	SRT_TRY(read_size(given, type, &nbytes));
	if (nbytes > full_nbytes)
		memset((char *)given + full_nbytes, 0, nbytes - full_nbytes);
	memcpy(given, full, nbytes < full_nbytes ? nbytes : full_nbytes);
	memcpy(given, &nbytes, sizeof(nbytes));
	return SRT_OK;
}

const void *srt_struct_at(const void *array, size_t i)
{
	size_t nbytes;

	memcpy(&nbytes, array, sizeof(nbytes));
	return (const char *)array + i * nbytes;
}
