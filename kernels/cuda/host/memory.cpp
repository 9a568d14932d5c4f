// Device memory: each allocation has its own pages between two inaccessible
// guard pages and ends at the upper one, so an overrun faults. The contents
// start as 0xFF bytes (NaN as f32 and bf16, -1 as an integer). Freed ranges stay
// reserved, so a use after free faults too.
//
// Programs allocate thousands of times, and each system call counts: allocations are cut
// from large reserved ranges, get their contents when they are first touched, and are
// closed together.
#include "runtime.h"
#include <algorithm>
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
	bool filled;  // with poison
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

// Reserved ranges, by where they begin: what is free of the last one, and the end of each.
static const size_t RESERVE = (size_t)1 << 30;
static std::map<uintptr_t, uintptr_t> reserved;
static char *unused;
static size_t unused_bytes;

static bool reserve(size_t bytes) {
	char *p = (char *)mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return false;
	*(volatile char *)p = 0; // with a page in use, parts of the range that were protected apart join again
	if (mprotect(p, bytes, PROT_NONE)) perror("hostcuda: mprotect"), abort();
	reserved[(uintptr_t)p] = (uintptr_t)p + bytes;
	unused = p, unused_bytes = bytes;
	return true;
}

uintptr_t mem_alloc(size_t bytes) {
	if (bytes > mem_total() - live_bytes) return 0;
	const size_t n = round_up(bytes, PAGE), all = n + 2 * PAGE;
	if (all > unused_bytes && !reserve(std::max(all, RESERVE))) return 0;
	Allocation a = {unused + PAGE, n, unused + PAGE + n - round_up(bytes, ALIGN), bytes, false, false};
	unused += all, unused_bytes -= all;
	live[(uintptr_t)a.base] = a;
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
	// The memory is given back, not the addresses.
	if (a.touched) protect(a, PROT_NONE);
	if (a.filled) madvise(a.pages, a.page_bytes, MADV_DONTNEED);
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

static bool read_only;
static std::vector<uintptr_t> kept_closed; // base addresses

void mem_open() { is_open = true; }
void mem_close() {
	is_open = read_only = false;
	kept_closed.clear();
	if (touched.empty()) return;
	std::sort(touched.begin(), touched.end());
	for (size_t i = 0; i < touched.size();) { // a call for all of a range: what lies between is closed
		const uintptr_t from = touched[i] & ~(PAGE - 1), end = std::prev(reserved.upper_bound(from))->second;
		uintptr_t to = from;
		for (; i < touched.size() && touched[i] < end; i++) {
			auto it = live.find(touched[i]);
			if (it == live.end()) continue;
			it->second.touched = false;
			to = (uintptr_t)it->second.pages + it->second.page_bytes;
		}
		if (to > from && mprotect((void *)from, to - from, PROT_NONE)) perror("hostcuda: mprotect"), abort();
	}
	touched.clear();
}

// open_until_close makes an allocation accessible, and fills it at the first time.
static void open_until_close(Allocation &a) {
	if (a.touched) return;
	protect(a, PROT_READ | PROT_WRITE);
	if (!a.filled) memset(a.pages, POISON, a.page_bytes);
	if (read_only) protect(a, PROT_READ);
	a.filled = a.touched = true;
	touched.push_back((uintptr_t)a.base);
}

static Allocation *find(std::map<uintptr_t, Allocation> &in, uintptr_t p) {
	auto it = in.upper_bound(p);
	return it == in.begin() ? nullptr : &(--it)->second;
}

void mem_open_ahead(const std::vector<uintptr_t> &others) {
	mem_close();
	for (uintptr_t p : others)
		if (Allocation *a = find(live, p)) kept_closed.push_back((uintptr_t)a->base);
	is_open = read_only = true;
}

bool mem_contains(uintptr_t p, size_t n) {
	Allocation *a = find(live, p);
	size_t offset = a ? p - (uintptr_t)a->base : 0;
	return a && offset <= a->size && n <= a->size - offset;
}

bool mem_read(void *dst, uintptr_t src, size_t n) {
	if (!mem_contains(src, n)) return report("copy of %zu bytes from %s", n, mem_describe(src).c_str()), false;
	open_until_close(*find(live, src));
	memcpy(dst, (void *)src, n);
	return true;
}

bool mem_write(uintptr_t dst, const void *src, size_t n) {
	if (!mem_contains(dst, n)) return report("copy of %zu bytes to %s", n, mem_describe(dst).c_str()), false;
	open_until_close(*find(live, dst));
	memcpy((void *)dst, src, n);
	return true;
}

bool mem_touch(uintptr_t p) {
	Allocation *a = find(live, p);
	if (a && std::count(kept_closed.begin(), kept_closed.end(), (uintptr_t)a->base)) return false;
	if (!is_open || !a || a->touched || p < (uintptr_t)a->pages || p >= (uintptr_t)a->pages + a->page_bytes) return false;
	open_until_close(*a);
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
