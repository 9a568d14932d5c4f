// Sends and receives between the devices of several processes by NCCL, whose library is
// loaded at run time.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { NCCL_ID = 128, NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };

typedef struct glimpse_move {
	uintptr_t at; // device memory
	size_t bytes;
	int peer, sends;
} glimpse_move;

// Loads the library; 0, or a message in error.
int glimpse_nccl_open(const char *path, char *error, size_t size);
int glimpse_nccl_version(void);

// Calls return NCCL's results. Communicators do not block: a result may be IN_PROGRESS, and
// glimpse_nccl_state tells what becomes of it.
int glimpse_nccl_id(char *id);
int glimpse_nccl_init(void **comm, int ranks, const char *id, int rank);
int glimpse_nccl_state(void *comm);
// Queues all moves on a stream, to be done at the same time.
int glimpse_nccl_move(void *comm, const glimpse_move *moves, int n, void *stream);
int glimpse_nccl_finalize(void *comm);
int glimpse_nccl_destroy(void *comm);
int glimpse_nccl_abort(void *comm);
// What a result means, and what comm (may be null) has said last.
const char *glimpse_nccl_error(void *comm, int result, const char **last);
