// Hopper's instructions, as PTX ISA describes them and as late as it allows: a bulk copy
// poisons its destination at once and arrives when no thread can go on without it; a
// product reads its operands and writes its accumulators at the wait, until which they
// are poison. So a barrier, wait or fence that is missing shows. It does not show
// whether PTX ISA was read correctly.
#include "block.h"
#include "mma.h"
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace hc {
namespace {

struct Barrier {
	unsigned count, pending; // arrivals
	long bytes;              // announced less arrived
	uint64_t phase;
	bool fenced; // visible to the copy engine
};
std::map<const void *, Barrier> barriers;

// CUtensorMap, as far as it is used: a matrix of rows of elements of two bytes.
struct Map {
	uint64_t magic;
	uint64_t address, columns, rows, stride; // stride of the rows in bytes
	uint32_t box_columns, box_rows, swizzle;
};
const uint64_t MAGIC = 0x474c494d5053454d;

struct Copy {
	char *dst;
	Map map;
	int column, row;
	const void *barrier;
	Site at;
};
std::deque<Copy> copies;
std::set<const void *> acquired; // maps

struct Store { // by ordinary code, not yet fenced
	void *dst;
	unsigned char data[16];
};
std::map<int, std::vector<Store>> stores; // by thread

struct Product {
	float *d[32];
	const unsigned *a[32]; // null: a_matrix
	int registers;
	unsigned long long a_matrix, b_matrix;
	bool b_along_n, accumulate;
	int group;
	std::vector<float> input; // the accumulators; empty where the product before it writes them
	Site at;
};
struct Warp {
	std::vector<Product> pending; // in order
	int committed = 0;
	bool fenced = false;
	uint64_t trace = 0; // of its products: those of a warpgroup are the same
	int registers = 0;
};
std::map<int, Warp> warps;
Warp &warp() { return warps[thread_in_block() / 32]; }

Barrier &barrier(const void *b, Site at) {
	auto it = barriers.find(b);
	if (it == barriers.end()) fail(LAUNCH_FAILED, at, "mbarrier was not initialised");
	return it->second;
}

void complete_phase(Barrier &b) {
	if (b.pending || b.bytes) return;
	b.phase++;
	b.pending = b.count;
}

// Where 128-byte swizzle puts the byte at a linear address: bits 4–6 are xored with bits 7–9.
unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

struct Matrix {
	unsigned start, leading, stride;
	Matrix(unsigned long long d, Site at)
	    : start((d & 0x3FFF) << 4), leading((d >> 16 & 0x3FFF) << 4), stride((d >> 32 & 0x3FFF) << 4) {
		if (d >> 62 != 1) fail(LAUNCH_FAILED, at, "wgmma: matrix descriptor %#llx: only 128-byte swizzle is known here", d);
		if (d >> 49 & 7) fail(LAUNCH_FAILED, at, "wgmma: matrix descriptor %#llx: base offset, want 0", d);
	}
	float at_address(unsigned address, Site at) const {
		const char *p = shared_window() + swizzled(address);
		if (!in_shared(p, 2)) fail(ILLEGAL_ADDRESS, at, "wgmma: operand at shared address %#x lies outside the block's memory", address);
		__nv_bfloat16 v;
		memcpy(&v, p, 2);
		return __bfloat162float(v);
	}
	// Row r of a matrix whose rows lie along k: 8 rows of 128 bytes after each other, and so on every stride.
	float along_k(int r, int k, Site at) const { return at_address(start + r / 8 * stride + r % 8 * 128 + k * 2, at); }
	// Column n of a matrix whose rows lie along n: 64 columns in 128 bytes, the next ones leading further.
	float along_n(int n, int k, Site at) const { return at_address(start + n / 64 * leading + k / 8 * stride + k % 8 * 128 + n % 64 * 2, at); }
};

void poison(const Product &p) {
	for (int l = 0; l < 32; l++) memset(p.d[l], 0xFF, p.registers * 4);
}

// The product of the warp's 16 of the 64 rows.
void multiply(Product &p, int warp_in_group) {
	const int n = 2 * p.registers;
	static float A[16][16], B[16][256], D[16][256];
	for (int l = 0; l < 32; l++) {
		int g = l / 4, t = l % 4;
		for (int i = 0; p.a[l] && i < 4; i++)
			for (int e = 0; e < 2; e++) A[g + 8 * (i % 2)][2 * t + e + 8 * (i / 2)] = __bfloat162float({(unsigned short)(p.a[l][i] >> 16 * e)});
		const float *d = p.input.empty() ? p.d[l] : &p.input[l * p.registers];
		for (int i = 0; i < p.registers; i++) D[g + 8 * (i / 2 % 2)][i / 4 * 8 + 2 * t + i % 2] = p.accumulate ? d[i] : 0;
	}
	if (!p.a[0]) {
		Matrix a(p.a_matrix, p.at);
		for (int r = 0; r < 16; r++)
			for (int k = 0; k < 16; k++) A[r][k] = a.along_k(warp_in_group * 16 + r, k, p.at);
	}
	Matrix b(p.b_matrix, p.at);
	for (int k = 0; k < 16; k++)
		for (int c = 0; c < n; c++) B[k][c] = p.b_along_n ? b.along_n(c, k, p.at) : b.along_k(c, k, p.at);
	add_product(D, A, B, n, truncating());
	for (int l = 0; l < 32; l++)
		for (int i = 0; i < p.registers; i++) p.d[l][i] = D[l / 4 + 8 * (i / 2 % 2)][i / 4 * 8 + 2 * (l % 4) + i % 2];
}

// A copy whose arrival nobody has waited for is still on its way here when a product of its bytes starts.
void must_be_there(const Product &p) {
	const Matrix b(p.b_matrix, p.at);
	for (int n = 0; n == 0 || (p.b_along_n && n < 2 * p.registers); n += 64) {
		const char *at = shared_window() + b.start + n / 64 * b.leading;
		for (const Copy &c : copies)
			if (at >= c.dst && at < c.dst + (size_t)c.map.box_columns * c.map.box_rows * 2) fail(LAUNCH_FAILED, p.at, "wgmma of a tile whose bulk copy has not arrived");
	}
}

void whole_warpgroups(const char *name, Site at) {
	if (threads_of_block() % 128) fail(LAUNCH_FAILED, at, "%s: blocks of %d threads, want whole warpgroups", name, threads_of_block());
}

} // namespace

void hopper_start_block() {
	barriers.clear();
	copies.clear();
	acquired.clear();
	stores.clear();
	warps.clear();
}

unsigned shared_address(const void *p, Site at) {
	if (!in_shared(p, 1)) fail(ILLEGAL_ADDRESS, at, "not an address of shared memory");
	return (unsigned)((const char *)p - shared_window());
}

// ---- barriers

void mbarrier_init(void *b, unsigned count, Site at) {
	if (!in_shared(b, 8) || (uintptr_t)b % 8) fail(MISALIGNED_ADDRESS, at, "mbarrier: want 8 aligned bytes of shared memory");
	if (!count) fail(LAUNCH_FAILED, at, "mbarrier: count 0");
	barriers[b] = {count, count, 0, 0, false};
}

void mbarrier_init_fence() {
	for (auto &b : barriers) b.second.fenced = true;
}

void mbarrier_arrive(void *p, unsigned bytes, Site at) {
	Barrier &b = barrier(p, at);
	if (bytes && !b.fenced) fail(LAUNCH_FAILED, at, "mbarrier: bytes announced without a fence after its initialisation");
	if (!b.pending) fail(LAUNCH_FAILED, at, "mbarrier: more than %u arrivals in a phase", b.count);
	b.bytes += bytes;
	b.pending--;
	complete_phase(b);
	if (!bytes) yield(); // who waited for this overtakes; who announces bytes copies at once
}

bool barrier_complete(const void *p, unsigned parity) {
	auto it = barriers.find(p);
	return it != barriers.end() && (it->second.phase & 1) != parity;
}

std::string barrier_describe(const void *p, unsigned parity) {
	const Barrier &b = barriers[p];
	return "parity " + std::to_string(parity) + " of an mbarrier in phase " + std::to_string(b.phase) + " that lacks " + std::to_string(b.pending) +
	       " arrivals and " + std::to_string(b.bytes) + " bytes";
}

void mbarrier_wait(void *p, unsigned parity, Site at) {
	if (parity > 1) fail(LAUNCH_FAILED, at, "mbarrier: parity %u", parity);
	barrier(p, at);
	if (!barrier_complete(p, parity)) wait_for_barrier(p, parity, at);
}

// ---- bulk copies

void tensor_map_acquire(const void *map) { acquired.insert(map); }

void bulk_load(void *dst, const void *map, int column, int row, void *b, Site at) {
	Copy c = {(char *)dst, {}, column, row, b, at};
	if (!acquired.count(map)) fail(LAUNCH_FAILED, at, "bulk copy by a tensor map without a fence");
	if ((uintptr_t)map % 64 || !mem_contains((uintptr_t)map, 128) || !mem_read(&c.map, (uintptr_t)map, sizeof c.map) || c.map.magic != MAGIC)
		fail(LAUNCH_FAILED, at, "bulk copy: no tensor map at %p", map);
	size_t bytes = (size_t)c.map.box_columns * c.map.box_rows * 2;
	if (!in_shared(dst, bytes)) fail(ILLEGAL_ADDRESS, at, "bulk copy: destination is not in shared memory");
	if (shared_address(dst, at) % (c.map.swizzle ? 1024 : 128)) fail(MISALIGNED_ADDRESS, at, "bulk copy: destination at shared address %#x", shared_address(dst, at));
	if (!barrier(b, at).fenced) fail(LAUNCH_FAILED, at, "bulk copy: its mbarrier was not fenced after initialisation");
	memset(dst, 0xFF, bytes); // undefined from now on
	copies.push_back(c);
}

bool deliver_copy() {
	if (copies.empty()) return false;
	Copy c = reversed() ? copies.back() : copies.front();
	reversed() ? copies.pop_back() : copies.pop_front();
	const Map &m = c.map;
	mem_touch(m.address); // once, rather than for every row
	const unsigned base = (unsigned)(c.dst - shared_window());
	for (uint32_t r = 0; r < m.box_rows; r++)
		for (uint32_t chunk = 0; chunk < m.box_columns / 8; chunk++) { // 16 bytes
			unsigned char data[16] = {};
			long row = c.row + (long)r, column = c.column + (long)chunk * 8;
			long inside = row < 0 || row >= (long)m.rows || column < 0 ? 0 : (long)m.columns - column;
			size_t bytes = inside <= 0 ? 0 : inside >= 8 ? 16 : inside * 2;
			if (bytes && !mem_read(data, m.address + row * m.stride + column * 2, bytes)) { // it has reported where
				report("bulk copy at %s:%d reads outside its allocation", c.at.file, c.at.line);
				memset(data, 0xFF, 16);
			}
			unsigned linear = base + r * m.box_columns * 2 + chunk * 16;
			memcpy(shared_window() + (m.swizzle ? swizzled(linear) : linear), data, 16);
		}
	Barrier &b = barriers[c.barrier];
	b.bytes -= (long)m.box_columns * m.box_rows * 2; // what lies outside the tensor counts too
	complete_phase(b);
	return true;
}

// ---- ordinary stores that others read through the asynchronous proxy

void shared_store_16(void *dst, const void *v, Site at) {
	if (!in_shared(dst, 16) || (uintptr_t)dst % 16) fail(MISALIGNED_ADDRESS, at, "store of 16 bytes to shared memory");
	Store s = {dst, {}};
	memcpy(s.data, v, 16);
	memset(dst, 0xFF, 16); // not there before the fence
	stores[thread_in_block()].push_back(s);
}

void shared_store_fence() {
	auto &mine = stores[thread_in_block()];
	for (auto &s : mine) memcpy(s.dst, s.data, 16);
	mine.clear();
}

// ---- products of a warpgroup

// Every warp of a warpgroup asks for the same number, and the block has 64K registers.
void set_registers(int n, bool more, Site at) {
	whole_warpgroups("setmaxnreg", at);
	if (n < 24 || n > 256 || n % 8) fail(LAUNCH_FAILED, at, "setmaxnreg %d, want a multiple of 8 from 24 to 256", n);
	static int asked;
	asked = n;
	warp_collective(~0u, more ? "setmaxnreg.inc" : "setmaxnreg.dec", at, &asked, [](void **) { warp().registers = asked; });
}

void wgmma_fence(Site at) {
	warp_collective(~0u, "wgmma.fence", at, nullptr, [](void **) { warp().fenced = true; });
}

void wgmma_commit(Site at) {
	warp_collective(~0u, "wgmma.commit_group", at, nullptr, [](void **) { warp().committed++; });
}

void wgmma(float *d, int registers, const unsigned *a, unsigned long long a_matrix, unsigned long long b_matrix, bool b_along_n, bool accumulate, Site at) {
	whole_warpgroups("wgmma", at);
	struct Arg { Product p; float *d; const unsigned *a; } arg;
	arg.d = d;
	arg.a = a;
	arg.p = {{}, {}, registers, a_matrix, b_matrix, b_along_n, accumulate, 0, {}, at};
	warp_collective(~0u, "wgmma", at, &arg, [](void **args) {
		Warp &w = warp();
		Product p = ((Arg *)args[0])->p;
		must_be_there(p);
		if (!w.fenced) fail(LAUNCH_FAILED, p.at, "wgmma without wgmma.fence since ordinary code could touch its registers");
		for (int l = 0; l < 32; l++) {
			const Arg &x = *(Arg *)args[l];
			p.d[l] = x.d;
			p.a[l] = x.a;
			if (x.p.a_matrix != p.a_matrix || x.p.b_matrix != p.b_matrix) fail(LAUNCH_FAILED, p.at, "wgmma: lanes with different matrices");
		}
		p.group = w.committed;
		bool chained = false;
		for (auto &before : w.pending) chained |= before.d[0] == p.d[0];
		if (!chained) {
			for (int l = 0; l < 32; l++) p.input.insert(p.input.end(), p.d[l], p.d[l] + p.registers);
			poison(p);
		}
		w.trace = (w.trace ^ p.a_matrix ^ p.b_matrix * 31 ^ (uint64_t)p.at.line) * 0x9E3779B97F4A7C15;
		w.pending.push_back(p);
	});
}

void wgmma_wait(int groups, Site at) {
	static int in_flight;
	in_flight = groups;
	warp_collective(~0u, "wgmma.wait_group", at, nullptr, [](void **) {
		Warp &w = warp();
		size_t done = 0;
		for (; done < w.pending.size() && w.pending[done].group < w.committed - in_flight; done++) {
			Product &p = w.pending[done];
			multiply(p, thread_in_block() / 32 % 4);
			for (size_t i = done + 1; i < w.pending.size(); i++) { // not there before the last one of its chain
				if (w.pending[i].d[0] != p.d[0]) continue;
				if (w.pending[i].group < w.committed - in_flight) break;
				for (int l = 0; l < 32; l++) w.pending[i].input.insert(w.pending[i].input.end(), p.d[l], p.d[l] + p.registers);
				poison(p);
				break;
			}
		}
		w.pending.erase(w.pending.begin(), w.pending.begin() + done);
		w.fenced = false;
	});
}

Result hopper_end_block() {
	if (!copies.empty()) return report("%zu bulk copies were on their way when the block ended", copies.size()), LAUNCH_FAILED;
	int registers = 0;
	for (int i = 0; i < threads_of_block() / 32; i++) {
		if (!warps.count(i) && !warps.count(i / 4 * 4)) continue;
		Warp &w = warps[i];
		if (!w.pending.empty()) return report("products at %s:%d were never waited for", w.pending[0].at.file, w.pending[0].at.line), LAUNCH_FAILED;
		if (w.trace != warps[i / 4 * 4].trace) return report("warps %d and %d of a warpgroup started different products", i / 4 * 4, i), LAUNCH_FAILED;
		if (w.registers != warps[i / 4 * 4].registers) return report("warps %d and %d of a warpgroup asked for %d and %d registers", i / 4 * 4, i, warps[i / 4 * 4].registers, w.registers), LAUNCH_FAILED;
		registers += 32 * w.registers;
	}
	if (registers > 64 << 10) return report("the warps asked for %d registers, a block has 65536", registers), LAUNCH_FAILED;
	for (auto &s : stores)
		if (!s.second.empty()) return report("thread %d stored to shared memory without a fence", s.first), LAUNCH_FAILED;
	return SUCCESS;
}

} // namespace hc

// ---- the driver's part

extern "C" __attribute__((visibility("default"))) int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                                                                             const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                                                             int interleave, int swizzle, int promotion, int fill) {
	using namespace hc;
	auto refuse = [&](const char *why) { return report("cuTensorMapEncodeTiled: %s", why), INVALID_VALUE; };
	// CUDA 12 asks for 64 bytes, CUDA 13 for 128.
	if ((uintptr_t)map % 128) return refuse("the map is not aligned to 128 bytes");
	if (type != 9 || rank != 2 || interleave || fill || promotion < 0 || promotion > 3) return refuse("only matrices of bf16, not interleaved, zeros outside, are known here");
	if (swizzle != 0 && swizzle != 3) return refuse("only swizzle of 128 bytes and none are known here");
	if ((uintptr_t)address % 16) return refuse("the tensor is not aligned to 16 bytes");
	if (strides[0] % 16 || strides[0] >= 1ull << 40) return refuse("stride not a multiple of 16 below 2^40");
	for (int i = 0; i < 2; i++)
		if (!sizes[i] || sizes[i] > 1ull << 32 || !box[i] || box[i] > 256 || steps[i] != 1) return refuse("size, box or step out of range");
	if (box[0] * 2 % 16 || (swizzle && box[0] * 2 != 128)) return refuse("rows of the box that are not of 128 bytes");
	Map m = {MAGIC, (uint64_t)address, sizes[0], sizes[1], strides[0], box[0], box[1], (uint32_t)swizzle};
	memset(map, 0, 128);
	memcpy(map, &m, sizeof m);
	return SUCCESS;
}
