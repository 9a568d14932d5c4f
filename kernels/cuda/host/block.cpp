// Runs a launch: blocks one after another, the threads of a block as fibers.
//
// Scheduling is deliberately unfair: a warp runs until all its lanes wait at a
// block barrier or have exited, and only then the next warp starts. Code that
// lacks a barrier thus reads data that was never written (poison) or was
// already overwritten. HOSTCUDA_ORDER=reverse runs blocks, warps and lanes
// backwards, which exposes the races that the forward order hides; random, or
// random:SEED, mixes warps and lanes anew at every turn, as a rehearsal of a chip does
// where nothing else is said.
#include "block.h"
#include "mma.h"
#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <map>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

uint3 threadIdx, blockIdx;
unsigned hc_lane;
dim3 blockDim, gridDim;

// A context is a stack pointer, on top of whose stack lies where it goes on. The fault
// handler continues in the scheduler's at hc_resume.
extern "C" char hc_resume[];
asm(R"(
.text
.globl hc_resume
.hidden hc_resume
hc_resume:
	pop %rax
	jmp *%rax
)");

// switch_to leaves the running context in *save and continues with `to`. Inlined, and with
// every register clobbered: only those are saved that are in use. (swapcontext would make a
// system call each time; a ret would be mispredicted each time.)
static inline __attribute__((always_inline)) void switch_to(void **save, void *to) {
	asm volatile("push %%rbp\n\tlea 1f(%%rip), %%rax\n\tpush %%rax\n\tmov %%rsp, (%0)\n\t"
	             "mov %1, %%rsp\n\tpop %%rax\n\tjmp *%%rax\n1:\tpop %%rbp"
	             : "+D"(save), "+S"(to)
	             :
	             : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc",
	               "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
	               "xmm12", "xmm13", "xmm14", "xmm15");
}

namespace hc {

Kernel *kernels;

namespace {

const size_t STACK = 64 << 10, PAGE = 4096, MAX_THREADS = 1024;
const size_t MAX_DYNAMIC_SHARED = 228 << 10;

// A thread that waits in a warp collective is READY in its own eyes: its warp knows.
enum State { READY, AT_BARRIER, AT_MBARRIER, YIELDED, EXITED };

struct Copy { // a cp.async that has not been waited for
	void *dst;
	unsigned char data[16];
	int size, group;
};

struct Collective { // that a warp or some of its lanes wait in
	Site site;
	const char *name;
	unsigned mask;
};
struct alignas(64) Fiber { // what a switch touches: one cache line
	void *sp;
	uint3 index;
	State state;
	Collective in; // of a barrier the site alone; of a warp that is not apart, Warp has it
};
struct Rest {
	const void *mbarrier; // that the thread waits for, and the parity of the phase
	unsigned parity;
	std::vector<Copy> copies;
	int group; // number of committed copy groups
};
struct Warp {
	Fiber *first;
	unsigned lanes;          // that there are
	unsigned ready, waiting; // lanes that can go on, and that wait in a warp collective
	unsigned left;           // lanes that the pass over the warp has not come to
	unsigned turn, start;    // the same of a warp in random order
	bool mixed;
	Collective in;           // what the first waiting lane came to
	bool apart;              // others have come to another: then each lane has its own
	void *args[32];          // of the collective, by lane
};

// State of the launch in progress; the driver runs one at a time.
struct {
	const Kernel *kernel;
	void **params;
	int threads;
	Result result;
	void *scheduler_sp;
	int exited, at_barrier, parked; // threads; parked: for others of the block or for copies
	bool copies;                    // some thread has begun or counted copies
	Site barrier;                   // where the first of at_barrier waits
	bool apart;                     // and another of them elsewhere
	char *dynamic, *static_shared;
	size_t dynamic_bytes, static_bytes, anchor; // anchor: where in static_shared tls_anchor lies
	size_t own_from, own_to; // of static_shared: what the kernel's file has
	bool reverse, random, truncate;
	bool ahead; // what comes before grid_wait alone
} run;
uint64_t random_state;

unsigned random_number() { // xorshift
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state >> 33;
}
Fiber fibers[MAX_THREADS];
Rest rests[MAX_THREADS];
Warp warps[MAX_THREADS / 32], *running; // running: that of the current thread
Fiber *current;                         // null while the scheduler runs
Rest &rest() { return rests[current - fibers]; }

char *stacks, *dynamic_end;

struct { // filled by the signal handler
	int signal;
	uintptr_t address, pc;
	pthread_t thread;
} fault;
const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction previous[4];

void to_scheduler() { switch_to(&current->sp, run.scheduler_sp); }

// next_lane is the next in the pass over the lanes of a warp that can go on, or -1 where
// none can. A pass comes to each lane once; while any can go on, another one begins.
inline int next_lane(Warp &w) {
	if (w.mixed) {
		while (w.ready) {
			const unsigned lane = (w.turn++ * 5 + w.start) % 32; // 5 is odd: every lane once in 32 turns
			if (w.ready >> lane & 1) return lane;
		}
		return -1;
	}
	unsigned left = w.ready & w.left;
	if (!left) left = w.ready;
	if (!left) return -1;
	const int lane = run.reverse ? 31 - __builtin_clz(left) : __builtin_ctz(left);
	w.left = run.reverse ? (1u << lane) - 1 : ~1u << lane;
	return lane;
}

inline void select(Warp &w, int lane) {
	current = &w.first[lane];
	hc_lane = lane;
	threadIdx = current->index;
}

// leave lets the next lane of the warp go on, or the scheduler where there is none: the
// thread that calls it is no longer ready.
inline void leave() {
	Fiber *self = current;
	const int lane = next_lane(*running);
	if (lane < 0) return switch_to(&self->sp, run.scheduler_sp);
	select(*running, lane);
	switch_to(&self->sp, current->sp);
}

inline void stop(State state) {
	running->ready &= ~(1u << hc_lane);
	current->state = state;
}

void fiber_main() {
	run.kernel->call(run.params);
	if (run.ahead) {
		report("kernel %s block (%u,%u,%u) thread (%u,%u,%u): it has begun early and ends without grid_wait", run.kernel->name, blockIdx.x,
		       blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
		run.result = LAUNCH_FAILED;
	}
	stop(EXITED);
	run.exited++;
	leave();
}

void map_once() {
	if (stacks) return;
	stacks = (char *)mmap(0, MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *d = (char *)mmap(0, MAX_DYNAMIC_SHARED + PAGE, PROT_READ | PROT_WRITE,
	                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stacks == MAP_FAILED || d == MAP_FAILED) perror("hostcuda: mmap"), abort();
	for (size_t i = 0; i < MAX_THREADS; i++) mprotect(stacks + i * STACK, PAGE, PROT_NONE);
	dynamic_end = d + MAX_DYNAMIC_SHARED; // right-aligned like device memory
	mprotect(dynamic_end, PAGE, PROT_NONE);
}

// The library's TLS block of this OS thread: all __shared__ variables.
__shared__ char tls_anchor;
int find_tls(dl_phdr_info *info, size_t, void *) {
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const auto &ph = info->dlpi_phdr[i];
		char *start = (char *)info->dlpi_tls_data;
		if (ph.p_type != PT_TLS || &tls_anchor < start || &tls_anchor >= start + ph.p_memsz) continue;
		run.anchor = &tls_anchor - start;
		run.static_bytes = ph.p_memsz;
		return 1;
	}
	return 0;
}

// A fault inside a kernel abandons the fiber: execution continues in the
// scheduler as if the fiber had switched to it. Other faults are Go's.
void on_fault(int sig, siginfo_t *info, void *context) {
	ucontext_t *uc = (ucontext_t *)context;
	if (!current || !pthread_equal(pthread_self(), fault.thread)) {
		for (int i = 0; i < 4; i++)
			if (SIGNALS[i] == sig) {
				if (previous[i].sa_flags & SA_SIGINFO) return previous[i].sa_sigaction(sig, info, context);
				sigaction(sig, &previous[i], 0); // default action: fault again and die
			}
		return;
	}
	if (sig == SIGSEGV && mem_touch((uintptr_t)info->si_addr)) return; // and the access is tried again
	fault.signal = sig;
	fault.address = (uintptr_t)info->si_addr;
	fault.pc = uc->uc_mcontext.gregs[REG_RIP];
	uc->uc_mcontext.gregs[REG_RSP] = (greg_t)run.scheduler_sp;
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)hc_resume;
}

// handle_faults sets the handlers at the first launch. They stay: what is no kernel's fault goes
// on to those that were there before.
void handle_faults() {
	struct sigaction sa = {};
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK; // the faulting fiber's stack may be full
	sigfillset(&sa.sa_mask);
	for (int i = 0; i < 4; i++) sigaction(SIGNALS[i], &sa, &previous[i]);
}

void report_fault() {
	Dl_info lib = {};
	dladdr((void *)fault.pc, &lib);
	const char *what = fault.signal == SIGFPE ? "integer division by zero"
	                 : fault.signal == SIGILL ? "trap (array index, misaligned access, shift, overflow or conversion)" : "illegal address ";
	bool memory = fault.signal == SIGSEGV || fault.signal == SIGBUS;
	std::string where = !memory ? "" : fault.address >= (uintptr_t)dynamic_end && fault.address < (uintptr_t)dynamic_end + PAGE
	                  ? "past the dynamic shared memory" : mem_describe(fault.address);
	if (run.ahead) where += ", before grid_wait: kernels ahead of it write it, or it does";
	report("kernel %s block (%u,%u,%u) thread (%u,%u,%u): %s%s (addr2line -fie %s %#lx)", run.kernel->name,
	       blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what, where.c_str(),
	       lib.dli_fname ? lib.dli_fname : "?", (unsigned long)(fault.pc - (uintptr_t)lib.dli_fbase));
	run.result = ILLEGAL_ADDRESS;
}

void start_fiber(int t) {
	Fiber &f = fibers[t];
	// Staggered: at equal offsets, all stacks would fall in the same cache sets.
	void **sp = (void **)(stacks + (t + 1) * STACK - t % 64 * 320);
	*--sp = 0; // keeps the stack aligned as after a call
	*--sp = (void *)fiber_main;
	f.sp = sp;
	f.state = READY;
}

// Runs one warp until none of its lanes can go on.
void run_warp(Warp &w) {
	if (w.mixed) w.turn = 0, w.start = random_number();
	w.left = ~0u;
	const int lane = next_lane(w);
	if (lane < 0) return;
	running = &w;
	select(w, lane);
	switch_to(&run.scheduler_sp, current->sp);
	current = nullptr;
	if (fault.signal) report_fault(), fault.signal = 0;
}

bool same_site(Site a, Site b) {
	return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

bool identical(const Collective &a, const Collective &b) {
	return a.site.file == b.site.file && a.site.line == b.site.line && a.name == b.name && a.mask == b.mask;
}

// part gives every waiting lane a record of its own.
__attribute__((noinline)) void part(Warp &w) {
	if (w.apart) return;
	w.apart = true;
	for (unsigned left = w.waiting; left; left &= left - 1) w.first[__builtin_ctz(left)].in = w.in;
}

// All threads wait or have exited, and not all at the same barrier.
void report_deadlock() {
	std::map<std::string, int> groups;
	for (int w = 0; w < (run.threads + 31) / 32; w++) part(warps[w]);
	for (int t = 0; t < run.threads; t++) {
		Fiber &f = fibers[t];
		char text[256];
		if (f.state == EXITED) snprintf(text, sizeof text, "have exited");
		else if (f.state == AT_MBARRIER) snprintf(text, sizeof text, "wait at %s:%d for %s", f.in.site.file, f.in.site.line, barrier_describe(rests[t].mbarrier, rests[t].parity).c_str());
		else if (f.state == AT_BARRIER) snprintf(text, sizeof text, "wait in __syncthreads at %s:%d", f.in.site.file, f.in.site.line);
		else snprintf(text, sizeof text, "wait in %s (mask %#x) at %s:%d", f.in.name, f.in.mask, f.in.site.file, f.in.site.line);
		groups[text]++;
	}
	std::string all;
	for (auto &g : groups) all += (all.empty() ? "" : "; ") + std::to_string(g.second) + " threads " + g.first;
	report("kernel %s block (%u,%u,%u): divergence deadlock: %s", run.kernel->name, blockIdx.x, blockIdx.y,
	       blockIdx.z, all.c_str());
	run.result = LAUNCH_FAILED;
}

// Lets the thread go on at the next turn of its warp.
void wake(int t) {
	fibers[t].state = READY;
	warps[t / 32].ready |= 1u << t % 32;
}

void run_block() {
	memset(run.dynamic, 0xFF, run.dynamic_bytes);
	memset(run.static_shared + run.own_from, 0xFF, run.own_to - run.own_from);
	hopper_start_block();
	const int count = (run.threads + 31) / 32;
	for (int t = 0; t < run.threads; t++) start_fiber(t);
	for (int t = 0; run.copies && t < (int)MAX_THREADS; t++) rests[t].copies.clear(), rests[t].group = 0;
	run.copies = false;
	int order[MAX_THREADS / 32];
	for (int w = 0; w < count; w++) {
		const int lanes = std::min(32, run.threads - w * 32);
		const unsigned all = ~0u >> (32 - lanes);
		warps[w].first = &fibers[w * 32];
		warps[w].lanes = warps[w].ready = all;
		warps[w].waiting = 0;
		warps[w].mixed = run.random && lanes == 32;
		order[w] = run.reverse ? count - 1 - w : w;
	}
	run.exited = run.at_barrier = run.parked = 0;
	for (;;) {
		for (int w = count - 1; run.random && w > 0; w--) std::swap(order[w], order[random_number() % (w + 1)]);
		for (int w = 0; w < count; w++) {
			run_warp(warps[order[w]]);
			if (run.result) return;
		}
		bool again = false;
		for (int t = 0; run.parked && t < run.threads; t++) {
			Fiber &f = fibers[t];
			if (f.state == YIELDED || (f.state == AT_MBARRIER && barrier_complete(rests[t].mbarrier, rests[t].parity))) wake(t), run.parked--, again = true;
		}
		if (again || deliver_copy()) continue;
		// Now no thread can go on by itself.
		if (run.exited == run.threads) {
			run.result = hopper_end_block();
			if (run.result) report("kernel %s block (%u,%u,%u)", run.kernel->name, blockIdx.x, blockIdx.y, blockIdx.z);
			return;
		}
		// Stricter than the hardware, which lets exited threads and
		// different __syncthreads calls complete a barrier.
		if (run.at_barrier != run.threads || run.apart) return report_deadlock();
		for (int t = 0; t < run.threads; t++) fibers[t].state = READY;
		for (int w = 0; w < count; w++) warps[w].ready = warps[w].lanes;
		run.at_barrier = 0;
	}
}

} // namespace

// Reports an error of the current thread and ends the launch.
void fail(Result r, Site at, const char *format, ...) {
	char text[256];
	va_list ap;
	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	report("kernel %s block (%u,%u,%u) thread (%u,%u,%u) at %s:%d: %s", run.kernel->name, blockIdx.x,
	       blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, at.file, at.line, text);
	run.result = r;
	to_scheduler(); // never resumed
}

bool in_shared(const void *p, size_t n) {
	auto within = [&](char *base, size_t size) {
		return (char *)p >= base && (char *)p + n <= base + size;
	};
	return within(run.dynamic, run.dynamic_bytes) || within(run.static_shared, run.static_bytes);
}

int thread_in_block() { return current - fibers; }
int threads_of_block() { return run.threads; }
bool reversed() { return run.reverse; }
bool truncating() { return run.truncate; }
char *shared_window() { return dynamic_end - MAX_DYNAMIC_SHARED; }

void yield() {
	stop(YIELDED);
	run.parked++;
	leave();
}

void wait_for_barrier(const void *barrier, unsigned parity, Site at) {
	current->in.site = at;
	rest().mbarrier = barrier;
	rest().parity = parity;
	stop(AT_MBARRIER);
	run.parked++;
	leave();
}

void report(const char *format, ...) {
	va_list ap;
	va_start(ap, format);
	fputs("hostcuda: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
}

// What a kernel does before it waits, it may do before those ahead of it have run.
void grid_wait() {
	if (!run.ahead) return;
	stop(EXITED);
	run.exited++;
	leave();
}

Result run_kernel(const Kernel &k, dim3 grid, dim3 block, size_t shared_bytes, void **params, bool ahead) {
	map_once();
	run.ahead = ahead;
	const char *order = getenv("HOSTCUDA_ORDER"), *mma = getenv("HOSTCUDA_MMA");
	run.kernel = &k;
	run.params = params;
	run.threads = block.x * block.y * block.z;
	run.result = SUCCESS;
	run.reverse = order && !strcmp(order, "reverse");
#ifdef HC_CHIP
	if (!order) order = "random";
#endif
	run.random = order && !strncmp(order, "random", 6);
	if (run.random && !random_state) random_state = 88172645463325252ull + (order[6] == ':' ? atoi(order + 7) : 0);
	run.truncate = mma && !strcmp(mma, "truncate");
	run.dynamic_bytes = shared_bytes;
	run.dynamic = dynamic_end - (shared_bytes + 15) / 16 * 16;
	tls_anchor = 0; // makes the dynamic linker allocate the TLS block
	static const bool found = dl_iterate_phdr(find_tls, 0);
	(void)found;
	run.static_shared = &tls_anchor - run.anchor;
	run.own_from = 0, run.own_to = run.static_bytes;
	static_shared_of(k.file, run.own_from, run.own_to);
	gridDim = grid;
	blockDim = block;
	for (int t = 0; t < run.threads; t++)
		fibers[t].index = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};

	fault.thread = pthread_self();
	static const bool handled = (handle_faults(), true);
	(void)handled;
	size_t blocks = (size_t)grid.x * grid.y * grid.z;
	for (size_t i = 0; i < blocks && !run.result; i++) {
		size_t b = run.reverse ? blocks - 1 - i : i;
		blockIdx = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
		run_block();
	}
	return run.result;
}

void *dynamic_shared() { return run.dynamic; }

void block_barrier(Site at) {
	current->in.site = at;
	if (!run.at_barrier++) run.barrier = at, run.apart = false;
	else run.apart |= !same_site(at, run.barrier);
	stop(AT_BARRIER);
	leave();
}

// complete_collective does the work of a warp collective that all its lanes wait in, of those
// that have not all come to the same one; false where some wait in another.
__attribute__((noinline)) bool complete_collective(Warp &w, const Collective &in, unsigned all, void (*op)(void **)) {
	void *args[32] = {};
	for (unsigned left = all; left; left &= left - 1) {
		const int i = __builtin_ctz(left);
		const Collective &other = w.apart ? w.first[i].in : w.in;
		if (other.mask != in.mask || other.name != in.name || !same_site(other.site, in.site)) return false;
		args[i] = w.args[i];
	}
	op(args);
	w.waiting &= ~all;
	w.ready |= all;
	return true;
}

void warp_collective(unsigned mask, const char *name, Site at, void *arg, void (*op)(void **)) {
	Warp &w = *running;
	const unsigned bit = 1u << hc_lane;
	const Collective in = {at, name, mask};
	if (!(mask & bit)) fail(LAUNCH_FAILED, at, "%s: the calling lane is not in its mask %#x", name, mask);
	if (!w.waiting) w.in = in, w.apart = false;
	else if (w.apart || !identical(w.in, in)) part(w), current->in = in;
	w.args[hc_lane] = arg;
	w.ready &= ~bit;
	w.waiting |= bit;
	const unsigned all = mask & w.lanes;
	if (all & ~w.waiting) return leave();
	// The last lane to arrive does the work.
	if (all == ~0u && !w.apart) { // as nearly always
		op(w.args);
		w.waiting = 0;
		w.ready = ~0u;
	} else if (!complete_collective(w, in, all, op)) {
		leave();
	}
}

void whole_warp_collective(const char *name, Site at, void *arg, void (*op)(void **)) {
	if (run.threads % 32) fail(LAUNCH_FAILED, at, "%s needs whole warps", name);
	warp_collective(~0u, name, at, arg, op);
}

// ---- asynchronous copies

void cp_async(void *dst, const void *src, int size, int bytes, Site at) {
	if ((uintptr_t)dst % size || (uintptr_t)src % size) fail(MISALIGNED_ADDRESS, at, "cp.async: addresses must be %d-byte aligned", size);
	if (!in_shared(dst, size)) fail(ILLEGAL_ADDRESS, at, "cp.async: destination is not in shared memory");
	Copy c = {dst, {}, size, rest().group};
	memcpy(c.data, src, bytes);
	memset(dst, 0xFF, size); // undefined until the wait
	rest().copies.push_back(c);
	run.copies = true;
}

void cp_async_commit() {
	rest().group++;
	run.copies = true;
}

void cp_async_wait(int in_flight) {
	auto &copies = rest().copies;
	size_t done = 0;
	for (; done < copies.size() && copies[done].group < rest().group - in_flight; done++)
		memcpy(copies[done].dst, copies[done].data, copies[done].size);
	copies.erase(copies.begin(), copies.begin() + done);
}

// ---- matrix fragments

// Row r of matrix m comes from the address given by lane 8m+r; lane l gets
// elements 2(l%4), 2(l%4)+1 of row l/4 of each matrix.
void ldmatrix_x4(unsigned *r, const void *row, Site at) {
	if ((uintptr_t)row % 16) fail(MISALIGNED_ADDRESS, at, "ldmatrix: row address must be 16-byte aligned");
	if (!in_shared(row, 16)) fail(ILLEGAL_ADDRESS, at, "ldmatrix: row is not in shared memory");
	struct Arg { unsigned *r; const unsigned *row; } arg = {r, (const unsigned *)row};
	whole_warp_collective("ldmatrix", at, &arg, [](void **args) {
		for (int l = 0; l < 32; l++)
			for (int m = 0; m < 4; m++)
				((Arg *)args[l])->r[m] = ((Arg *)args[8 * m + l / 4])->row[l % 4];
	});
}

// The same of the transposed matrices: lane l gets rows 2(l%4), 2(l%4)+1 of column l/4.
void ldmatrix_x4_trans(unsigned *r, const void *row, Site at) {
	if ((uintptr_t)row % 16) fail(MISALIGNED_ADDRESS, at, "ldmatrix: row address must be 16-byte aligned");
	if (!in_shared(row, 16)) fail(ILLEGAL_ADDRESS, at, "ldmatrix: row is not in shared memory");
	struct Arg { unsigned *r; const unsigned short *row; } arg = {r, (const unsigned short *)row};
	whole_warp_collective("ldmatrix.trans", at, &arg, [](void **args) {
		for (int l = 0; l < 32; l++)
			for (int m = 0; m < 4; m++) {
				auto element = [&](int e) -> unsigned { return ((Arg *)args[8 * m + 2 * (l % 4) + e])->row[l / 4]; };
				((Arg *)args[l])->r[m] = element(0) | element(1) << 16;
			}
	});
}

// Fragment layout of mma.m16n8k16, with g = lane/4 and t = lane%4:
//   a[i], elements e: row g + 8(i%2),  k = 2t + e + 8(i/2)
//   b[i], elements e: k = 2t + e + 8i, column g
//   c[i], d[i]:       row g + 8(i/2),  column 2t + i%2
void mma_bf16_16816(float *d, const unsigned *a, const unsigned *b, const float *c, Site at) {
	struct Arg { float *d; const unsigned *a, *b; const float *c; } arg = {d, a, b, c};
	whole_warp_collective("mma", at, &arg, [](void **args) {
		float A[16][16], B[16][8], D[16][8];
		auto bf16 = [](unsigned pair, int e) {
			return __bfloat162float({(unsigned short)(pair >> 16 * e)});
		};
		for (int l = 0; l < 32; l++) {
			Arg &x = *(Arg *)args[l];
			int g = l / 4, t = l % 4;
			for (int e = 0; e < 2; e++) {
				for (int i = 0; i < 4; i++) A[g + 8 * (i % 2)][2 * t + e + 8 * (i / 2)] = bf16(x.a[i], e);
				for (int i = 0; i < 2; i++) B[2 * t + e + 8 * i][g] = bf16(x.b[i], e);
			}
			for (int i = 0; i < 4; i++) D[g + 8 * (i / 2)][2 * t + i % 2] = x.c[i];
		}
		add_product(D, A, B, 8, run.truncate);
		for (int l = 0; l < 32; l++)
			for (int i = 0; i < 4; i++)
				((Arg *)args[l])->d[i] = D[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
	});
}

} // namespace hc
