// The CUDA driver API on top of memory.cpp and block.cpp: only the calls that
// the project uses. Work is queued per stream and runs no earlier than at a
// synchronisation, so code that forgets one sees stale data.
#include "runtime.h"
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <set>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace hc {
namespace {

struct Stream;
struct Op {
	uint64_t seq; // position in the order of all API calls
	std::function<Result()> run;
};
// Captured work. kind tells what may take another's place when a graph is updated: the
// kernel, or the sort of copy.
struct GraphOp {
	std::string kind;
	std::function<Result()> run;
};
typedef std::vector<GraphOp> Graph;
struct Stream {
	bool legacy_sync; // orders itself with the default stream
	std::deque<Op> ops;
	std::shared_ptr<Graph> capture; // while it is captured
	bool broken = false;            // the capture, by a call that cannot be part of it
};
struct Event {
	bool recorded = false;
	uint64_t stream = 0, seq = 0;
	double time = 0; // milliseconds, set when the recording runs
};

std::mutex mutex; // one driver call at a time; kernels run inside it
uint64_t last_seq, last_id = 1;
std::map<uint64_t, Stream> streams = {{0, {false, {}, nullptr}}}; // 0 is the default stream
std::map<uint64_t, std::shared_ptr<Event>> events;
std::map<uint64_t, Image> modules;
std::map<const Kernel *, int> architectures; // of the machine code of kernels that were asked for
std::set<const Kernel *> loaded;             // the others load their code at the first launch
std::map<uint64_t, std::shared_ptr<Graph>> graphs, graph_execs;
std::map<pthread_t, uint64_t> current_context; // no thread_local: see cuda_host.h
std::map<int, uint64_t> contexts;              // by device, at most one each
std::map<const Kernel *, unsigned> allowed_shared; // by cuFuncSetAttribute
Result sticky; // a kernel error makes the context unusable, as on a real device

// Runs the queued operations of a stream up to seq, and before each of them
// what the default stream's implicit ordering puts before it.
void run_until(uint64_t id, uint64_t seq) {
	auto it = streams.find(id);
	if (it == streams.end()) return; // destroyed: it was drained then
	Stream &s = it->second;
	while (!s.ops.empty() && s.ops.front().seq <= seq) {
		Op op = std::move(s.ops.front());
		s.ops.pop_front();
		if (id == 0) {
			for (auto &other : streams)
				if (other.second.legacy_sync) run_until(other.first, op.seq - 1);
		} else if (s.legacy_sync) {
			run_until(0, op.seq - 1);
		}
		if (sticky) continue;
		Result r = op.run();
		if (r == PENDING) return s.ops.push_front(std::move(op)); // the others go on meanwhile
		if (r) sticky = r;
	}
}

void run_all() {
	for (auto &s : streams) run_until(s.first, last_seq);
}

// What no kind is given for cannot be captured: copies to and from the host would read
// or write its memory as it is at some later time.
Result enqueue(uint64_t stream, std::function<Result()> f, std::string kind = "") {
	auto it = streams.find(stream);
	if (it == streams.end()) return INVALID_HANDLE;
	if (it->second.capture) {
		if (!kind.empty()) return it->second.capture->push_back({kind, f}), SUCCESS;
		it->second.broken = true;
		return report("this call cannot be captured"), CAPTURE_UNSUPPORTED;
	}
	it->second.ops.push_back({++last_seq, std::move(f)});
	return SUCCESS;
}

// For the synchronous calls: runs f in the default stream and waits for it.
Result run_now(std::function<Result()> f) {
	enqueue(0, std::move(f));
	run_until(0, last_seq);
	return sticky;
}

bool is_context(uint64_t c) {
	for (auto &d : contexts)
		if (d.second == c) return true;
	return false;
}

// Entry check of every call that needs a context on this thread: goroutines
// move between threads, so a missing LockOSThread must show here.
Result enter() {
	auto it = current_context.find(pthread_self());
	if (it == current_context.end() || !is_context(it->second)) return INVALID_CONTEXT;
	return sticky;
}

// Held by every driver call. A call may run many queued kernels, so device
// memory is closed once at its end and not after each kernel.
struct Call {
	std::unique_lock<std::mutex> guard{mutex};
	~Call() { mem_close(); }
};

// For the calls that wait: runs a stream up to seq, and lets other ranks call while
// it waits for what they send.
Result drain(Call &call, uint64_t id, uint64_t seq) {
	for (;;) {
		run_until(id, seq);
		auto it = streams.find(id);
		if (it == streams.end() || it->second.ops.empty() || it->second.ops.front().seq > seq) return sticky;
		mem_close();
		call.guard.unlock();
		usleep(100);
		call.guard.lock();
	}
}

double now_ms() {
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

std::map<uintptr_t, size_t> pinned; // memory of the host by address

Result copy_async(uint64_t stream, uintptr_t dst, const void *src, size_t n) {
	auto it = pinned.upper_bound((uintptr_t)src);
	if (it != pinned.begin() && (--it)->first + it->second > (uintptr_t)src) // read when its turn comes
		return enqueue(stream, [=] { return mem_write(dst, src, n) ? SUCCESS : INVALID_VALUE; });
	// As for pageable memory on a device: the source may be reused at once.
	auto data = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + n);
	return enqueue(stream, [=] { return mem_write(dst, data->data(), n) ? SUCCESS : INVALID_VALUE; });
}

template <class T> Result fill(uint64_t stream, uintptr_t dst, T value, size_t count) {
	return enqueue(stream, [=] {
		std::vector<T> v(count, value);
		return mem_write(dst, v.data(), count * sizeof(T)) ? SUCCESS : INVALID_VALUE;
	}, "fill");
}

Result copy_on_device(uint64_t stream, uintptr_t dst, uintptr_t src, size_t n) {
	return enqueue(stream, [=] {
		std::vector<char> v(n);
		return mem_read(v.data(), src, n) && mem_write(dst, v.data(), n) ? SUCCESS : INVALID_VALUE;
	}, "copy");
}

} // namespace

// For the twins of libraries.
int enqueue_library(uint64_t stream, std::function<Result()> f) {
	Call call;
	if (Result r = enter()) return r;
	return enqueue(stream, std::move(f), "library");
}
} // namespace hc

using namespace hc;
#define API extern "C" __attribute__((visibility("default"))) int
#define ENTER  \
	Call call; \
	if (Result r = enter()) return r

// ---- device and context

// HOSTCUDA_DEVICES is the number of devices, 1 unless said otherwise. They have streams and
// memory in common; whether a tensor is on the right one is for its user to check.
static int device_count() {
	const char *n = getenv("HOSTCUDA_DEVICES");
	return n && *n ? atoi(n) : 1;
}

// Which HOSTCUDA_ variables make the driver refuse something tells by its name: a chip
// knows none, and neither does a rehearsal of one.
#ifdef HC_CHIP
static const char NAME[] = "rehearsal of a chip (no GPU)";
enum { PROCESSORS = 132 };
#else
static const char NAME[] = "host driver (no GPU)";
enum { PROCESSORS = 2 };
#endif

API cuInit(unsigned) { return !device_count() ? NO_DEVICE : SUCCESS; }
// HOSTCUDA_VERSION is the CUDA that the driver is of, 13000 unless said otherwise.
static int cuda_version() {
	const char *version = getenv("HOSTCUDA_VERSION");
	return version ? atoi(version) : 13000;
}
API cuDriverGetVersion(int *v) { return *v = cuda_version(), SUCCESS; }
API cuDeviceGetCount(int *n) { return *n = device_count(), SUCCESS; }
API cuDeviceGet(int *d, int i) { return i < 0 || i >= device_count() ? INVALID_DEVICE : (*d = i, SUCCESS); }
API cuDeviceGetName(char *s, int n, int) { return snprintf(s, n, "%s", NAME), SUCCESS; }
API cuDeviceTotalMem_v2(size_t *n, int) { return *n = mem_total(), SUCCESS; }
// HOSTCUDA_PROCESSORS is the number of multiprocessors.
static int processors() {
	const char *n = getenv("HOSTCUDA_PROCESSORS");
	return n && atoi(n) > 0 ? atoi(n) : PROCESSORS;
}
// HOSTCUDA_CAPABILITY is the compute capability, 9.0 unless said otherwise.
static int capability(bool minor) {
	const char *c = getenv("HOSTCUDA_CAPABILITY");
	const char *dot = c ? strchr(c, '.') : nullptr;
	if (!dot) return minor ? 0 : 9;
	return atoi(minor ? dot + 1 : c);
}

API cuDeviceGetAttribute(int *v, int attribute, int device) {
	if (attribute == 16) return *v = processors(), SUCCESS;
	if (attribute == 75 || attribute == 76) return *v = capability(attribute == 76), SUCCESS;
	if (attribute == 34) return *v = device, SUCCESS; // its place on the PCI bus
	static const std::map<int, int> values = {
	    {33, 0}, {50, 0}, // PCI bus and domain
	    {1, 1024}, {2, 1024}, {3, 1024}, {4, 64},            // block size and its x, y, z
	    {8, 48 << 10}, {10, 32}, // shared, warp
	    {97, MAX_SHARED}};                                  // shared memory when asked for
	auto it = values.find(attribute);
	if (it == values.end()) return report("cuDeviceGetAttribute(%d) is not known", attribute), INVALID_VALUE;
	return *v = it->second, SUCCESS;
}

// The primary context is kept until it is reset: releasing it frees nothing, so that
// leaks can be counted by cuMemGetInfo.
API cuDevicePrimaryCtxRetain(uint64_t *c, int device) {
	Call call;
	uint64_t &context = contexts[device];
	if (!context) {
		if (contexts.size() == 1) sticky = SUCCESS;
		context = ++last_id;
	}
	return *c = context, SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API cuDevicePrimaryCtxReset_v2(int) {
	Call call;
	run_all();
	mem_free_all();
	streams.clear(), streams[0] = {false, {}, nullptr};
	events.clear();
	modules.clear();
	graphs.clear();
	graph_execs.clear();
	contexts.clear();
	return sticky = SUCCESS;
}

API cuCtxCreate_v2(uint64_t *c, unsigned, int) {
	Call call;
	if (!contexts.empty()) return report("cuCtxCreate: only one context at a time"), INVALID_VALUE;
	*c = contexts[0] = ++last_id;
	current_context[pthread_self()] = *c;
	return sticky = SUCCESS;
}
API cuCtxDestroy_v2(uint64_t c) {
	Call call;
	if (!is_context(c)) return INVALID_CONTEXT;
	run_all();
	mem_free_all();
	streams.clear(), streams[0] = {false, {}, nullptr};
	events.clear();
	modules.clear();
	graphs.clear();
	graph_execs.clear();
	contexts.clear();
	return sticky = SUCCESS;
}
API cuCtxSetCurrent(uint64_t c) {
	Call call;
	if (c && !is_context(c)) return INVALID_CONTEXT;
	return current_context[pthread_self()] = c, SUCCESS;
}
API cuCtxGetCurrent(uint64_t *c) {
	Call call;
	auto it = current_context.find(pthread_self());
	return *c = it == current_context.end() ? 0 : it->second, SUCCESS;
}
API cuCtxSynchronize() {
	ENTER;
	return run_all(), sticky;
}

// ---- modules

API cuModuleLoadData(uint64_t *m, const void *data) {
	ENTER;
	Image image;
	if (Result r = choose_image(data, 10 * capability(false) + capability(true), cuda_version(), image)) return r;
	*m = ++last_id;
	return modules[*m] = std::move(image), SUCCESS;
}
API cuModuleLoadFatBinary(uint64_t *m, const void *data) { return cuModuleLoadData(m, data); }
API cuModuleGetFunction(const Kernel **f, uint64_t m, const char *name) {
	ENTER;
	auto it = modules.find(m);
	if (it == modules.end()) return INVALID_HANDLE;
	if (!it->second.has_kernel(name)) return report("kernel %s is not in the module", name), NOT_FOUND;
	for (const Kernel *k = kernels; k; k = k->next)
		if (!strcmp(k->name, name)) return architectures[k] = it->second.arch, *f = k, SUCCESS;
	return report("kernel %s has no HOST_KERNEL(%s)", name, name), NOT_FOUND;
}
API cuFuncSetAttribute(const Kernel *k, int attribute, int value) {
	ENTER;
	if (!k || attribute != 8 || value < 0 || value > MAX_SHARED - STATIC_SHARED) // 8: most dynamic shared memory
		return report("cuFuncSetAttribute(%s, %d, %d)", k ? k->name : "(null)", attribute, value), INVALID_VALUE;
	return allowed_shared[k] = value, SUCCESS;
}
API cuFuncLoad(const Kernel *k) {
	ENTER;
	return loaded.insert(k), SUCCESS;
}
API cuFuncGetAttribute(int *value, int attribute, const Kernel *k) {
	ENTER;
	loaded.insert(k);
	if (k && attribute == 6) return *value = architectures[k], SUCCESS; // what runs
	if (!k || attribute != 1) // 1: static shared memory
		return report("cuFuncGetAttribute(%s, %d)", k ? k->name : "(null)", attribute), INVALID_VALUE;
	return *value = STATIC_SHARED, SUCCESS;
}
API cuModuleUnload(uint64_t m) {
	ENTER;
	return modules.erase(m) ? SUCCESS : INVALID_HANDLE;
}

// ---- memory

API cuMemGetInfo_v2(size_t *unused, size_t *total) {
	ENTER;
	*total = mem_total();
	return *unused = *total - mem_live(), SUCCESS;
}
API cuMemAlloc_v2(uintptr_t *p, size_t n) {
	ENTER;
	if (!n) return INVALID_VALUE;
	return (*p = mem_alloc(n)) ? SUCCESS : OUT_OF_MEMORY;
}
API cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	ENTER;
	if (!n || flags) return INVALID_VALUE;
	if (getenv("HOSTCUDA_UNPINNED") || !(*p = malloc(n))) return OUT_OF_MEMORY;
	return pinned[(uintptr_t)*p] = n, SUCCESS;
}
API cuMemFree_v2(uintptr_t p) {
	ENTER;
	run_all(); // cuMemFree synchronises the device
	return !p || mem_free(p) ? SUCCESS : INVALID_VALUE;
}
API cuMemcpyHtoD_v2(uintptr_t d, const void *s, size_t n) {
	ENTER;
	return run_now([=] { return mem_write(d, s, n) ? SUCCESS : INVALID_VALUE; });
}
API cuMemcpyDtoH_v2(void *d, uintptr_t s, size_t n) {
	ENTER;
	return run_now([=] { return mem_read(d, s, n) ? SUCCESS : INVALID_VALUE; });
}
API cuMemcpyDtoD_v2(uintptr_t d, uintptr_t s, size_t n) {
	ENTER;
	return copy_on_device(0, d, s, n);
}
API cuMemcpyHtoDAsync_v2(uintptr_t d, const void *s, size_t n, uint64_t stream) {
	ENTER;
	return copy_async(stream, d, s, n);
}
API cuMemcpyDtoHAsync_v2(void *d, uintptr_t s, size_t n, uint64_t stream) {
	ENTER; // to pageable memory: returns when the copy is done
	if (Result r = enqueue(stream, [=] { return mem_read(d, s, n) ? SUCCESS : INVALID_VALUE; })) return r;
	return drain(call, stream, last_seq);
}
API cuMemcpyDtoDAsync_v2(uintptr_t d, uintptr_t s, size_t n, uint64_t stream) {
	ENTER;
	return copy_on_device(stream, d, s, n);
}
API cuMemsetD8_v2(uintptr_t d, unsigned char v, size_t n) {
	ENTER;
	return fill(0, d, v, n);
}
API cuMemsetD32_v2(uintptr_t d, unsigned v, size_t n) {
	ENTER;
	return fill(0, d, v, n);
}
API cuMemsetD8Async(uintptr_t d, unsigned char v, size_t n, uint64_t stream) {
	ENTER;
	return fill(stream, d, v, n);
}
API cuMemsetD32Async(uintptr_t d, unsigned v, size_t n, uint64_t stream) {
	ENTER;
	return fill(stream, d, v, n);
}

// ---- streams and events

API cuStreamCreate(uint64_t *s, unsigned flags) {
	ENTER;
	*s = ++last_id;
	return streams[*s] = {!(flags & 1), {}, nullptr}, SUCCESS; // 1: CU_STREAM_NON_BLOCKING
}
API cuStreamDestroy_v2(uint64_t s) {
	ENTER;
	run_until(s, last_seq);
	return s && streams.erase(s) ? sticky : INVALID_HANDLE;
}
API cuStreamSynchronize(uint64_t s) {
	ENTER;
	if (!streams.count(s)) return INVALID_HANDLE;
	if (streams[s].capture) return streams[s].broken = true, CAPTURE_UNSUPPORTED;
	return drain(call, s, last_seq);
}
API cuStreamQuery(uint64_t s) {
	ENTER;
	if (!streams.count(s)) return INVALID_HANDLE;
	if (streams[s].capture) return streams[s].broken = true, CAPTURE_UNSUPPORTED;
	bool idle = streams[s].ops.empty();
	run_until(s, last_seq); // a loop of queries must end
	if (!sticky && !streams[s].ops.empty()) return NOT_READY;
	return sticky ? sticky : idle ? SUCCESS : NOT_READY;
}
API cuStreamWaitEvent(uint64_t s, uint64_t e, unsigned) {
	ENTER;
	if (!events.count(e)) return INVALID_HANDLE;
	Event at = *events[e]; // the recording known now counts, not a later one
	return enqueue(s, [=] { return at.recorded ? run_until(at.stream, at.seq) : void(), SUCCESS; });
}
API cuEventCreate(uint64_t *e, unsigned) {
	ENTER;
	*e = ++last_id;
	return events[*e] = std::make_shared<Event>(), SUCCESS;
}
API cuEventDestroy_v2(uint64_t e) {
	ENTER;
	return events.erase(e) ? SUCCESS : INVALID_HANDLE;
}
API cuEventRecord(uint64_t e, uint64_t stream) {
	ENTER;
	if (!events.count(e)) return INVALID_HANDLE;
	auto ev = events[e];
	if (Result r = enqueue(stream, [=] { return ev->time = now_ms(), SUCCESS; })) return r;
	ev->recorded = true;
	ev->stream = stream;
	ev->seq = last_seq;
	return SUCCESS;
}
API cuEventSynchronize(uint64_t e) {
	ENTER;
	if (!events.count(e)) return INVALID_HANDLE;
	return events[e]->recorded ? drain(call, events[e]->stream, events[e]->seq) : sticky;
}
API cuEventElapsedTime(float *ms, uint64_t start, uint64_t end) {
	ENTER;
	if (!events.count(start) || !events.count(end)) return INVALID_HANDLE;
	if (!events[start]->recorded || !events[end]->recorded) return INVALID_HANDLE;
	for (uint64_t e : {start, end}) {
		auto &ops = streams[events[e]->stream].ops;
		if (!ops.empty() && ops.front().seq <= events[e]->seq) return NOT_READY;
	}
	return *ms = float(events[end]->time - events[start]->time), SUCCESS;
}

// ---- launch

// HOSTCUDA_FAIL is how the names of kernels begin that end in an illegal access, after
// which the context is good for nothing more.
static bool fails(const char *name) {
	const char *begin = getenv("HOSTCUDA_FAIL");
	return begin && *begin && !strncmp(name, begin, strlen(begin));
}

// What the kernels write that may still run where a kernel begins early: the one ahead of it, and, if
// that began early, those ahead of that one.
static std::vector<uintptr_t> ahead;

static Result launch(const Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                     uint64_t stream, void **params, void **extra, bool early) {
	if (!k || extra || !gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || bz > 64 ||
	    (uint64_t)bx * by * bz > 1024 || shared > (allowed_shared.count(k) ? allowed_shared[k] : 48u << 10))
		return report("kernel %s: bad launch configuration", k ? k->name : "(null)"), INVALID_VALUE;
	if (streams.count(stream) && streams[stream].capture && !loaded.count(k)) {
		streams[stream].broken = true;
		return report("kernel %s is not loaded yet: a launch that is captured would load it", k->name), CAPTURE_UNSUPPORTED;
	}
	// The caller may reuse its parameters as soon as the launch returns.
	std::vector<uint64_t> values;
	for (int i = 0; i < k->count; i++) {
		if (k->params[i].size > 8) return report("kernel %s: parameter %d is too big", k->name, i), INVALID_VALUE;
		uint64_t v = 0;
		memcpy(&v, params[i], k->params[i].size);
		values.push_back(v);
		// On the CPU a host pointer would simply work.
		if (k->params[i].pointer && v && !mem_contains(v, 0))
			return report("kernel %s: parameter %d: %s", k->name, i, mem_describe(v).c_str()), sticky = ILLEGAL_ADDRESS;
	}
	return enqueue(stream, [=]() mutable {
		std::vector<void *> p;
		for (auto &v : values) p.push_back(&v);
		if (early) {
			mem_open_ahead(ahead);
			Result r = run_kernel(*k, {gx, gy, gz}, {bx, by, bz}, shared, p.data(), true);
			mem_close();
			if (r) return r;
		} else {
			ahead.clear();
		}
		for (int i = 0; i < k->count; i++)
			if (k->params[i].written && values[i]) ahead.push_back(values[i]);
		mem_open();
		if (fails(k->name)) return report("kernel %s: HOSTCUDA_FAIL", k->name), ILLEGAL_ADDRESS;
		for (int i = 0; i < k->count; i++)
			if (k->params[i].pointer) mem_touch(values[i]); // which a fault would do at a higher price
		Result r = run_kernel(*k, {gx, gy, gz}, {bx, by, bz}, shared, p.data());
		if (!mem_check_padding()) {
			report("kernel %s wrote outside an allocation", k->name);
			if (!r) r = ILLEGAL_ADDRESS;
		}
		return r;
	}, std::string(early ? "early kernel " : "kernel ") + k->name);
}

API cuLaunchKernel(const Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, uint64_t stream, void **params, void **extra) {
	ENTER;
	return launch(k, gx, gy, gz, bx, by, bz, shared, stream, params, extra, false);
}

struct LaunchAttribute {
	int id, pad, value[16];
};
struct LaunchConfig {
	unsigned gx, gy, gz, bx, by, bz, shared;
	uint64_t stream;
	const LaunchAttribute *attributes;
	unsigned count;
};
API cuLaunchKernelEx(const LaunchConfig *c, const Kernel *k, void **params, void **extra) {
	ENTER;
	const char *on = getenv("HOSTCUDA_EARLY"); // 0: a driver that refuses it
	if (on && !strcmp(on, "0")) return report("kernel %s is to begin early", k->name), CANNOT_CAPTURE;
	if (!c || c->count != 1 || c->attributes[0].id != 6 || c->attributes[0].value[0] != 1)
		return report("cuLaunchKernelEx: want programmatic stream serialization alone"), INVALID_VALUE;
	if (architectures[k] < 90) return report("kernel %s of sm_%d waits for nothing", k ? k->name : "(null)", architectures[k]), INVALID_VALUE;
	return launch(k, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->stream, params, extra, true);
}

// ---- graphs

// HOSTCUDA_GRAPHS=0 is a driver that refuses to capture.
API cuStreamBeginCapture_v2(uint64_t s, int mode) {
	ENTER;
#ifndef HC_CHIP
	const char *on = getenv("HOSTCUDA_GRAPHS");
	if (on && !strcmp(on, "0")) return CANNOT_CAPTURE;
#endif
	if (!streams.count(s)) return INVALID_HANDLE;
	if (s == 0 || streams[s].capture) return ILLEGAL_STATE;
	if (mode != 2) return report("cuStreamBeginCapture: mode %d: goroutines change threads", mode), INVALID_VALUE;
	streams[s].capture = std::make_shared<Graph>();
	streams[s].broken = false;
	return SUCCESS;
}
API cuStreamEndCapture(uint64_t s, uint64_t *graph) {
	ENTER;
	*graph = 0;
	if (!streams.count(s)) return INVALID_HANDLE;
	Stream &stream = streams[s];
	if (!stream.capture) return ILLEGAL_STATE;
	auto captured = std::move(stream.capture);
	stream.capture = nullptr;
	if (stream.broken) return CAPTURE_INVALIDATED;
	*graph = ++last_id;
	return graphs[*graph] = captured, SUCCESS;
}
API cuGraphInstantiateWithFlags(uint64_t *exec, uint64_t graph, unsigned long long flags) {
	ENTER;
	if (!graphs.count(graph) || flags) return INVALID_VALUE;
	*exec = ++last_id;
	return graph_execs[*exec] = graphs[graph], SUCCESS; // captured graphs do not change any more
}
API cuGraphExecUpdate_v2(uint64_t exec, uint64_t graph, void *info) {
	ENTER;
	if (!graphs.count(graph) || !graph_execs.count(exec) || !info) return INVALID_VALUE;
	const Graph &before = *graph_execs[exec], &after = *graphs[graph];
	bool same = before.size() == after.size();
	for (size_t i = 0; same && i < before.size(); i++) same = before[i].kind == after[i].kind;
	memset(info, 0, 24);
	if (!same) return *(int *)info = 2, GRAPH_UPDATE_FAILURE; // the topology has changed
	return graph_execs[exec] = graphs[graph], SUCCESS;
}
API cuGraphLaunch(uint64_t exec, uint64_t stream) {
	ENTER;
	if (!graph_execs.count(exec)) return INVALID_VALUE;
	auto graph = graph_execs[exec]; // a later update does not reach this launch
	for (const GraphOp &op : *graph)
		if (Result r = enqueue(stream, op.run, op.kind)) return r;
	return SUCCESS;
}
API cuGraphExecDestroy(uint64_t exec) {
	ENTER;
	return graph_execs.erase(exec) ? SUCCESS : INVALID_VALUE;
}
API cuGraphDestroy(uint64_t graph) {
	ENTER;
	return graphs.erase(graph) ? SUCCESS : INVALID_VALUE;
}
