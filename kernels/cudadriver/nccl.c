//go:build gpu && linux && (amd64 || arm64)

#include "nccl.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// The part of NCCL's binary interface that is used here. The settings are those of version 2.14, the
// first with communicators that do not block: later ones take them by their version.
typedef struct { char bytes[NCCL_ID]; } unique_id;
enum { CONFIG_MAGIC = (int)0xcafebeef, CONFIG_VERSION = 21400, TYPE_BYTE = 1 };
typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking;
} config;

#define FUNCTIONS(X)                                             \
	X(GetVersion, (int *))                                       \
	X(GetUniqueId, (unique_id *))                                \
	X(CommInitRankConfig, (void **, int, unique_id, int, config *)) \
	X(CommGetAsyncError, (void *, int *))                        \
	X(CommFinalize, (void *))                                    \
	X(CommDestroy, (void *))                                     \
	X(CommAbort, (void *))                                       \
	X(GroupStart, (void))                                        \
	X(GroupEnd, (void))                                          \
	X(Send, (const void *, size_t, int, int, void *, void *))    \
	X(Recv, (void *, size_t, int, int, void *, void *))
#define X(name, parameters) static int (*nccl##name) parameters;
FUNCTIONS(X)
#undef X
static const char *(*ncclGetErrorString)(int);
static const char *(*ncclGetLastError)(void *);

int glimpse_nccl_open(const char *path, char *error, size_t size) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) return snprintf(error, size, "%s", dlerror()), 1;
#define LOAD(name, result, parameters)                                                            \
	if (!(nccl##name = (result(*) parameters)dlsym(library, "nccl" #name)))                        \
		return snprintf(error, size, "%s: no function nccl" #name ", want NCCL 2.14 or later", path), 1;
#define X(name, parameters) LOAD(name, int, parameters)
	FUNCTIONS(X)
#undef X
	LOAD(GetErrorString, const char *, (int))
	LOAD(GetLastError, const char *, (void *))
	return 0;
}

int glimpse_nccl_version(void) {
	int version = 0;
	return ncclGetVersion(&version) ? 0 : version;
}

int glimpse_nccl_id(char *id) {
	unique_id made;
	int r = ncclGetUniqueId(&made);
	memcpy(id, made.bytes, sizeof made.bytes);
	return r;
}

int glimpse_nccl_init(void **comm, int ranks, const char *id, int rank) {
	unique_id of;
	memcpy(of.bytes, id, sizeof of.bytes);
	config settings = {sizeof settings, (unsigned)CONFIG_MAGIC, CONFIG_VERSION, 0};
	return ncclCommInitRankConfig(comm, ranks, of, rank, &settings);
}

int glimpse_nccl_state(void *comm) {
	int state = 0, r = ncclCommGetAsyncError(comm, &state);
	return r ? r : state;
}

int glimpse_nccl_move(void *comm, const glimpse_move *moves, int n, void *stream) {
	int r = ncclGroupStart();
	if (r) return r;
	for (int i = 0; i < n && (!r || r == NCCL_IN_PROGRESS); i++) {
		const glimpse_move *m = &moves[i];
		r = m->sends ? ncclSend((void *)m->at, m->bytes, TYPE_BYTE, m->peer, comm, stream)
		             : ncclRecv((void *)m->at, m->bytes, TYPE_BYTE, m->peer, comm, stream);
	}
	int end = ncclGroupEnd(); // also of a group that has failed
	return r && r != NCCL_IN_PROGRESS ? r : end;
}

int glimpse_nccl_finalize(void *comm) { return ncclCommFinalize(comm); }
int glimpse_nccl_destroy(void *comm) { return ncclCommDestroy(comm); }
int glimpse_nccl_abort(void *comm) { return ncclCommAbort(comm); }

const char *glimpse_nccl_error(void *comm, int result, const char **last) {
	*last = ncclGetLastError(comm);
	return ncclGetErrorString(result);
}
