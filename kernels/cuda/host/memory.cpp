// Device memory: each allocation has its own pages between two inaccessible
// guard pages and ends at the upper one, so an overrun faults. The contents
// start as 0xFF bytes (NaN as f32 and bf16, -1 as an integer). Freed ranges stay
// reserved, so a use after free faults too.
#include "runtime.h"
#include <map>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

namespace hc {

static const size_t PAGE = 4096;
// Base addresses are aligned for 16-byte vector accesses; the up to 15 bytes
// between the end and the guard page are checked after each kernel instead.
static const size_t ALIGN = 16;
static const unsigned char POISON = 0xFF;

struct Allocation {
	char *pages; // accessible part, without the guard pages
	size_t page_bytes;
	char *base;
	size_t size;
	bool touched; // accessible
};
static std::map<uintptr_t, Allocation> live, dead; // by base address

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static void protect(const Allocation &a, int prot) {
	if (mprotect(a.pages, a.page_bytes, prot)) perror("hostcuda: mprotect"), abort();
}

static size_t live_bytes;
size_t mem_live() { return live_bytes; }
size_t mem_total() {
	const char *bytes = getenv("HOSTCUDA_MEMORY");
	return bytes ? strtoull(bytes, nullptr, 10) : (size_t)16 << 30;
}

uintptr_t mem_alloc(size_t bytes) {
	if (bytes > mem_total() - live_bytes) return 0;
	size_t n = round_up(bytes, PAGE);
	char *p = (char *)mmap(0, n + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return 0;
	Allocation a = {p + PAGE, n, p + PAGE + n - round_up(bytes, ALIGN), bytes, false};
	protect(a, PROT_READ | PROT_WRITE);
	memset(a.pages, POISON, n);
	protect(a, PROT_NONE);
	live[(uintptr_t)a.base] = a;
	dead.erase((uintptr_t)a.base);
	live_bytes += bytes;
	return (uintptr_t)a.base;
}

bool mem_free(uintptr_t p) {
	auto it = live.find(p);
	if (it == live.end()) {
		report("free of %s", mem_describe(p).c_str());
		return false;
	}
	Allocation a = it->second;
	// A fresh mapping over the old one gives the memory back, not the addresses.
	mmap(a.pages, a.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	live_bytes -= a.size;
	live.erase(it);
	dead[p] = a;
	return true;
}

void mem_free_all() {
	if (getenv("HOSTCUDA_LEAKS"))
		for (auto &e : live) report("leak: %zu bytes at %p", e.second.size, (void *)e.second.base);
	while (!live.empty()) mem_free(live.begin()->first);
}

// While memory is open, an allocation becomes accessible when it is first touched:
// programs hold thousands of them, of which a kernel uses a few.
static bool is_open;
static std::vector<uintptr_t> touched; // base addresses

void mem_open() { is_open = true; }
void mem_close() {
	for (uintptr_t p : touched) {
		auto it = live.find(p);
		if (it != live.end()) it->second.touched = false, protect(it->second, PROT_NONE);
	}
	touched.clear();
	is_open = false;
}

static Allocation *find(std::map<uintptr_t, Allocation> &in, uintptr_t p) {
	auto it = in.upper_bound(p);
	return it == in.begin() ? nullptr : &(--it)->second;
}

bool mem_contains(uintptr_t p, size_t n) {
	Allocation *a = find(live, p);
	size_t offset = a ? p - (uintptr_t)a->base : 0;
	return a && offset <= a->size && n <= a->size - offset;
}

bool mem_read(void *dst, uintptr_t src, size_t n) {
	if (!mem_contains(src, n)) return report("copy of %zu bytes from %s", n, mem_describe(src).c_str()), false;
	Allocation *a = find(live, src);
	if (!a->touched) protect(*a, PROT_READ);
	memcpy(dst, (void *)src, n);
	if (!a->touched) protect(*a, PROT_NONE);
	return true;
}

bool mem_write(uintptr_t dst, const void *src, size_t n) {
	if (!mem_contains(dst, n)) return report("copy of %zu bytes to %s", n, mem_describe(dst).c_str()), false;
	Allocation *a = find(live, dst);
	if (!a->touched) protect(*a, PROT_READ | PROT_WRITE);
	memcpy((void *)dst, src, n);
	if (!a->touched) protect(*a, PROT_NONE);
	return true;
}

bool mem_touch(uintptr_t p) {
	Allocation *a = find(live, p);
	if (!is_open || !a || a->touched || p < (uintptr_t)a->pages || p >= (uintptr_t)a->pages + a->page_bytes) return false;
	protect(*a, PROT_READ | PROT_WRITE);
	a->touched = true;
	touched.push_back((uintptr_t)a->base);
	return true;
}

bool mem_check_padding() {
	bool ok = true;
	for (uintptr_t base : touched) {
		auto it = live.find(base);
		if (it == live.end()) continue;
		Allocation &a = it->second;
		// What lies farther before an allocation than a few elements is left alone: with
		// many small allocations the check would take longer than the kernel.
		for (char *p = a.pages > a.base - 64 ? a.pages : a.base - 64; p < a.pages + a.page_bytes; p++) {
			if (p == a.base) p += a.size;
			if (p == a.pages + a.page_bytes) break;
			if ((unsigned char)*p == POISON) continue;
			report("write to %s", mem_describe((uintptr_t)p).c_str());
			memset(p, POISON, 1);
			ok = false;
			break;
		}
	}
	return ok;
}

std::string mem_describe(uintptr_t p) {
	char text[160];
	// Which allocation is meant: the one below p, or the next one for an underrun.
	for (auto *in : {&live, &dead}) {
		const char *state = in == &live ? "an" : "a freed";
		for (uintptr_t probe : {p, p + PAGE}) {
			Allocation *a = find(*in, probe);
			if (!a || p < (uintptr_t)a->pages - PAGE || p >= (uintptr_t)a->pages + a->page_bytes + PAGE) continue;
			long off = (long)(p - (uintptr_t)a->base);
			snprintf(text, sizeof text, "%#lx: byte %ld of %s allocation of %zu bytes at %p",
			         (unsigned long)p, off, state, a->size, (void *)a->base);
			return text;
		}
	}
	snprintf(text, sizeof text, "%#lx: not device memory", (unsigned long)p);
	return text;
}

} // namespace hc
