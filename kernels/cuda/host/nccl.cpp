// The twin of NCCL: the calls that kernels/cudadriver makes, between the devices of one process or of
// several. What is sent is a file in a folder that the id names; a send is done when the
// file has been taken, so that sends and receives which do not meet wait for ever, as they
// may on GPUs. Communicators do not block. HOSTCUDA_NCCL=RANK:CALL names a call that fails on a
// rank; HOSTCUDA_NCCL=stuck never gets a communicator ready.
#include "runtime.h"
#include <dirent.h>
#include <map>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace hc;

namespace {
enum { OK = 0, UNHANDLED_CUDA = 1, NCCL_SYSTEM = 2, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { INT8 = 0, UINT8 = 1, FLOAT32 = 7, FLOAT64 = 8, VERSION = 21400 };
struct Id { char bytes[128]; };
struct Config { size_t size; unsigned magic, version; int blocking; };

struct Comm {
	std::string folder;
	int rank, ranks;
	bool dead = false;
	int error = OK;
	std::vector<uint64_t> sent, received; // messages so far, by the other rank
};
struct Move {
	bool sends;
	uintptr_t at;
	size_t n;
	std::string file;
	bool begun = false, done = false;
};

std::recursive_mutex mutex; // never held while the driver is called, which calls back
std::string message;
// A group of calls belongs to a thread; no thread_local: see cuda_host.h.
struct Group { int depth = 0; std::shared_ptr<Comm> comm; uint64_t stream = 0; std::vector<Move> moves; };
std::map<pthread_t, Group> groups;
std::map<void *, std::shared_ptr<Comm>> comms;

int fail(int result, const char *text) {
	std::lock_guard<std::recursive_mutex> lock(mutex);
	return message = text, result;
}

std::shared_ptr<Comm> find(void *comm) {
	std::lock_guard<std::recursive_mutex> lock(mutex);
	auto it = comms.find(comm);
	return it == comms.end() ? nullptr : it->second;
}

bool refuses(int rank, const char *call) {
	const char *what = getenv("HOSTCUDA_NCCL");
	return what && std::to_string(rank) + ":" + call == what;
}

bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

bool put(const std::string &path, const void *data, size_t n) {
	std::string fresh = path + ".new";
	FILE *f = fopen(fresh.c_str(), "wb");
	if (!f) return false;
	bool ok = fwrite(data, 1, n, f) == n;
	return !fclose(f) && ok && !rename(fresh.c_str(), path.c_str());
}

// One look at a move; r is what the driver is told of an access that fails.
void progress(Move &m, Result &r) {
	std::vector<char> data(m.n);
	if (m.sends) {
		if (m.begun) return void(m.done = !exists(m.file));
		if (!mem_read(data.data(), m.at, m.n)) return void((report("ncclSend: %zu bytes at %s", m.n, mem_describe(m.at).c_str()), r = ILLEGAL_ADDRESS));
		if (!put(m.file, data.data(), m.n)) return void(r = LAUNCH_FAILED);
		m.begun = true;
		return;
	}
	struct stat s;
	if (stat(m.file.c_str(), &s)) return;
	FILE *f = fopen(m.file.c_str(), "rb");
	bool ok = f && (size_t)s.st_size == m.n && fread(data.data(), 1, m.n, f) == m.n;
	if (f) fclose(f);
	if (!ok) return void((report("ncclRecv: %zu bytes, want %zu as the other rank sends", m.n, (size_t)s.st_size), r = LAUNCH_FAILED));
	if (!mem_write(m.at, data.data(), m.n)) return void((report("ncclRecv: %zu bytes at %s", m.n, mem_describe(m.at).c_str()), r = ILLEGAL_ADDRESS));
	unlink(m.file.c_str());
	m.done = true;
}

// Everyone leaves a file; the last who ends removes the folder.
void leave(const Comm &c) {
	unlink((c.folder + "/rank" + std::to_string(c.rank)).c_str());
	DIR *d = opendir(c.folder.c_str());
	if (!d) return;
	bool others = false;
	std::vector<std::string> files;
	while (dirent *e = readdir(d)) {
		if (!strncmp(e->d_name, "rank", 4)) others = true;
		if (e->d_name[0] != '.') files.push_back(c.folder + "/" + e->d_name);
	}
	closedir(d);
	if (others) return;
	for (auto &f : files) unlink(f.c_str());
	rmdir(c.folder.c_str());
}

int move(bool sends, uintptr_t at, size_t count, int type, int peer, void *comm, uint64_t stream) {
	auto c = find(comm);
	if (!c || c->dead) return fail(INVALID_ARGUMENT, "no communicator");
	if (peer < 0 || peer >= c->ranks || (type != UINT8 && type != INT8) || !count) return fail(INVALID_ARGUMENT, "a peer, a type or a count that is none");
	if (refuses(c->rank, sends ? "ncclSend" : "ncclRecv")) return fail(UNHANDLED_CUDA, "HOSTCUDA_NCCL");
	std::lock_guard<std::recursive_mutex> lock(mutex);
	Group &g = groups[pthread_self()];
	if (!g.depth) return fail(INVALID_USAGE, "the twin of NCCL knows groups alone");
	if (g.comm && (g.comm != c || g.stream != stream)) return fail(INVALID_USAGE, "a group of two communicators or streams");
	g.comm = c, g.stream = stream;
	int from = sends ? c->rank : peer, to = sends ? peer : c->rank;
	uint64_t number = (sends ? c->sent : c->received)[peer]++;
	g.moves.push_back({sends, at, count, c->folder + "/" + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number)});
	return IN_PROGRESS; // which is no error in a group
}
} // namespace

#define NCCL(type, name) extern "C" __attribute__((visibility("default"))) type nccl##name

NCCL(int, GetVersion)(int *v) { return *v = VERSION, OK; }
NCCL(const char *, GetErrorString)(int result) { return result == UNHANDLED_CUDA ? "unhandled cuda error" : result == OK ? "no error" : "invalid usage"; }
NCCL(const char *, GetLastError)(void *) { return message.c_str(); }
NCCL(int, GetUniqueId)(Id *id) {
	const char *tmp = getenv("TMPDIR");
	std::string folder = std::string(tmp && *tmp ? tmp : "/tmp") + "/hostnccl-XXXXXX";
	memset(id, 0, sizeof *id);
	if (folder.size() >= sizeof id->bytes || !mkdtemp(&folder[0])) return fail(NCCL_SYSTEM, "no folder for messages");
	return memcpy(id->bytes, folder.c_str(), folder.size()), OK;
}
NCCL(int, CommInitRankConfig)(void **comm, int ranks, Id id, int rank, Config *config) {
	if (config->magic != 0xcafebeef || config->version > VERSION || config->size < sizeof *config || config->blocking)
		return fail(INVALID_ARGUMENT, "settings of another version, or of a communicator that blocks");
	if (rank < 0 || rank >= ranks || !exists(id.bytes)) return fail(INVALID_ARGUMENT, "no such rank, or no such id");
	if (refuses(rank, "ncclCommInitRankConfig")) return fail(UNHANDLED_CUDA, "HOSTCUDA_NCCL");
	auto c = std::make_shared<Comm>(Comm{id.bytes, rank, ranks, false, OK, std::vector<uint64_t>(ranks), std::vector<uint64_t>(ranks)});
	std::string mine = c->folder + "/rank" + std::to_string(rank);
	if (exists(mine)) return fail(INVALID_USAGE, "two have the same rank");
	if (!put(mine, "", 0) || !put(c->folder + "/here" + std::to_string(rank), "", 0)) return fail(NCCL_SYSTEM, "no message can be left");
	std::lock_guard<std::recursive_mutex> lock(mutex);
	return *comm = c.get(), comms[c.get()] = c, IN_PROGRESS;
}
NCCL(int, CommGetAsyncError)(void *comm, int *state) {
	auto c = find(comm);
	if (!c) return fail(INVALID_ARGUMENT, "no communicator");
	*state = c->error;
	const char *what = getenv("HOSTCUDA_NCCL");
	if (what && !strcmp(what, "stuck")) *state = IN_PROGRESS;
	for (int r = 0; !*state && r < c->ranks; r++) // until all have come
		if (!exists(c->folder + "/here" + std::to_string(r))) *state = IN_PROGRESS;
	return OK;
}
NCCL(int, CommFinalize)(void *comm) { return find(comm) ? OK : fail(INVALID_ARGUMENT, "no communicator"); }
NCCL(int, CommDestroy)(void *comm) {
	auto c = find(comm);
	if (!c) return fail(INVALID_ARGUMENT, "no communicator");
	c->dead = true;
	leave(*c);
	std::lock_guard<std::recursive_mutex> lock(mutex);
	return comms.erase(comm), OK;
}
NCCL(int, CommAbort)(void *comm) { return ncclCommDestroy(comm); } // what is under way ends undone
NCCL(int, GroupStart)() {
	std::lock_guard<std::recursive_mutex> lock(mutex);
	return groups[pthread_self()].depth++, OK;
}
NCCL(int, GroupEnd)() {
	Group g;
	{
		std::lock_guard<std::recursive_mutex> lock(mutex);
		auto it = groups.find(pthread_self());
		if (it == groups.end()) return fail(INVALID_USAGE, "no group to end");
		if (--it->second.depth) return OK;
		g = it->second;
		groups.erase(it);
	}
	if (!g.comm) return OK;
	auto comm = g.comm;
	auto moves = std::make_shared<std::vector<Move>>(g.moves);
	int r = enqueue_library(g.stream, [=] {
		Result r = SUCCESS;
		bool done = true;
		for (Move &m : *moves) {
			if (comm->dead) return SUCCESS;
			if (!m.done && !r) progress(m, r);
			done = done && m.done;
		}
		return r ? r : done ? SUCCESS : PENDING;
	});
	return r ? UNHANDLED_CUDA : OK;
}
NCCL(int, Send)(const void *at, size_t n, int type, int peer, void *comm, uint64_t stream) { return move(true, (uintptr_t)at, n, type, peer, comm, stream); }
NCCL(int, Recv)(void *at, size_t n, int type, int peer, void *comm, uint64_t stream) { return move(false, (uintptr_t)at, n, type, peer, comm, stream); }
