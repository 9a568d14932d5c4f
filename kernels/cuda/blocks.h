// Blocks of quantised weights (kernels/formats), read 32 elements at a time by four threads.
// Integers of up to 8 bits are exact in bf16, so that tensor cores multiply them as they are,
// and scales multiply sums.
#pragma once
#include "prims.h"

namespace blocks {

// What thread t of four has of 32 elements: 4t … 4t+3 and 16+4t … 16+4t+3. An element is its
// integer times the scale of its half, less low. q are the integers and ABOVE, or floats of 8 bits, as pairs
// of bf16: elements 4t and 4t+2, 4t+1 and 4t+3, then the same of the second half. Bit 8e+7 of nan[h]
// says that element e of the four of half h is NaN, whatever q is.
struct Part {
	unsigned q[4], nan[2];
	float scale[2], low;
};

// A format has its ELEMS and BYTES; ABOVE, which is 128 where a sum of what is multiplied by q, that low
// needs, takes it off, and 0 elsewhere; ALIGNED, where blocks are multiples of 16 bytes; LOW, where
// low is not 0; HALVES, where the halves have scales of their own; GROUPS, where eight groups have
// integer lows of one factor; NANS, where there is nan; WORDS, see Odd. It
// is a place in a row of weights, 64 elements at a time: open goes to those of a block, part reads
// 32 of them, the first or (i = 1) the second, and advance goes on from a block's pair of 32.

static __device__ __forceinline__ unsigned halves(const unsigned char *p) { // 4 bytes at an even address
	const unsigned short *h = reinterpret_cast<const unsigned short *>(p);
	return h[0] | (unsigned)h[1] << 16;
}
static __device__ __forceinline__ unsigned word(const unsigned char *p) { return *reinterpret_cast<const unsigned *>(p); }
// 4 bytes at any address, of shared memory or of a weight: no word is read that has none of them.
static __device__ __forceinline__ unsigned four_bytes(const unsigned char *p) {
	const unsigned at = (unsigned)(size_t)p;
	return __funnelshift_r(word(p - at % 4), word(p + (0u - at) % 4), 8 * at);
}
static __device__ __forceinline__ float half_at(const unsigned char *p) { return __half2float(*reinterpret_cast<const __half *>(p)); }
static __device__ __forceinline__ float half_of(unsigned bits) { // the low 16
	const unsigned short low = (unsigned short)bits;
	__half h;
	memcpy(&h, &low, 2);
	return __half2float(h);
}

// 128 + an integer below 128 is the bits of 128 with the integer's: integers of bits 0 to 6 and
// 16 to 22 of v where mask has them, less OFFSET.
template <int OFFSET> static __device__ __forceinline__ unsigned less(unsigned above) {
	return OFFSET == -128 ? above : add_bf16x2(above, 0xC300C300u + OFFSET * 0x10001u);
}
template <int OFFSET> static __device__ __forceinline__ unsigned integers(unsigned v, unsigned mask) {
	return less<OFFSET>(and_or(v, mask, 0x43004300u));
}
// Of four bytes below 128: each gets the upper byte of 128.
template <int OFFSET> static __device__ __forceinline__ void bytes_of(unsigned *q, unsigned bytes) {
	q[0] = less<OFFSET>(__byte_perm(bytes, 0x43, 0x4240)), q[1] = less<OFFSET>(__byte_perm(bytes, 0x43, 0x4341));
}
// Of four signed bytes: bit 7 counts −128.
static __device__ __forceinline__ void signed_bytes(unsigned *q, unsigned bytes) {
#pragma unroll
	for (int i = 0; i < 2; i++) {
		unsigned v = bytes >> 8 * i;
		q[i] = add_bf16x2(and_or(v, 0x007f007f, 0x43004300u), and_or(v, 0x00800080, 0xC300C300u));
	}
}
// Of four floats e4m3: with the exponent's offset of bf16 they are 2⁻¹²⁰ times what they are.
static __device__ __forceinline__ void floats_of(unsigned *q, unsigned &nan, unsigned bytes) {
	nan = (bytes & 0x7f7f7f7f) + 0x01010101;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const unsigned high = i ? bytes : bytes << 8;
		q[i] = multiply_bf16x2(and_or(high, 0x80008000, high >> 4 & 0x07f007f0), 0x7b807b80);
	}
}
// The low 4 bits of four bytes are elements of the first half, the high 4 bits of the second.
template <int OFFSET> static __device__ __forceinline__ void nibbles(unsigned (&q)[4], unsigned bytes) {
#pragma unroll
	for (int i = 0; i < 4; i++) q[i] = integers<OFFSET>(bytes >> (i % 2 * 8 + i / 2 * 4), 0x000f000f);
}
// The same with fifth bits, of which those of the first half are the low 4 bits of h and those
// of the second begin at bit 16. The product spreads four bits over four bytes.
template <int OFFSET> static __device__ __forceinline__ void fifths(unsigned (&q)[4], unsigned bytes, unsigned h) {
#pragma unroll
	for (int i = 0; i < 2; i++)
		bytes_of<OFFSET>(q + 2 * i, and_or(bytes >> 4 * i, 0x0f0f0f0f, (h >> 16 * i & 15) * 0x02040810 & 0x10101010));
}

// A scale and a low before the integers, in blocks that begin at multiples of 4 bytes.
static __device__ __forceinline__ void scale_and_low(Part &p, const unsigned char *block) {
	const unsigned both = word(block);
	p.scale[0] = p.scale[1] = half_of(both), p.low = -half_of(both >> 16);
}

// What formats that are one for the kernels differ in.
enum { HALF_SCALES = 1, ROUNDED = 2, UNSIGNED_ZEROS = 4 }; // scales are F16 and not BF16; numbers are rounded to F16

// Formats of 32 elements: two blocks at a time.
template <int SIZE> struct Blocks {
	static constexpr int ELEMS = 32, BYTES = SIZE;
	static constexpr int ABOVE = 0;
	static constexpr bool ALIGNED = false, HALVES = false, LOW = false, GROUPS = false, NANS = false, WORDS = false;
	const unsigned char *at;
	int t, flags;
	__device__ __forceinline__ void open(const unsigned char *block, int, int thread, int like) { at = block, t = thread, flags = like; }
	__device__ __forceinline__ float scale(unsigned bits) const { return flags & HALF_SCALES ? half_of(bits) : __uint_as_float(bits << 16); }
	__device__ __forceinline__ void advance(int) { at += 2 * BYTES; }
};

// I8_BF16 and I8_F16, too.
struct Q8_0 : Blocks<34> {
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *block = at + i * BYTES;
		p.scale[0] = p.scale[1] = this->scale(*reinterpret_cast<const unsigned short *>(block)), p.low = 0;
		signed_bytes(p.q, halves(block + 2 + 4 * t)), signed_bytes(p.q + 2, halves(block + 18 + 4 * t));
	}
};

struct Q4_0 : Blocks<18> {
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *block = at + i * BYTES;
		p.scale[0] = p.scale[1] = half_at(block), p.low = 0;
		nibbles<8>(p.q, halves(block + 2 + 4 * t));
	}
};

struct Q4_1 : Blocks<20> {
	static constexpr int ABOVE = 128;
	static constexpr bool LOW = true;
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *block = at + i * BYTES;
		scale_and_low(p, block);
		nibbles<-128>(p.q, word(block + 4 + 4 * t));
	}
};

struct Q5_0 : Blocks<22> {
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *block = at + i * BYTES;
		p.scale[0] = p.scale[1] = half_at(block), p.low = 0;
		fifths<16>(p.q, halves(block + 6 + 4 * t), halves(block + 2) >> 4 * t);
	}
};

struct Q5_1 : Blocks<24> {
	static constexpr int ABOVE = 128;
	static constexpr bool LOW = true;
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *block = at + i * BYTES;
		scale_and_low(p, block);
		fifths<-128>(p.q, word(block + 8 + 4 * t), word(block + 4) >> 4 * t);
	}
};

// Blocks that begin at any byte. With WORDS four of them do where a word does, and none is opened between them.
template <int SIZE, bool IN_FOURS> struct Odd : Blocks<SIZE> {
	static constexpr bool WORDS = IN_FOURS;
	int second = 0; // 1 in the second half of four
	// 4 bytes of block i from one on.
	__device__ __forceinline__ unsigned four(int i, int from, int t) const {
		if (!WORDS) return four_bytes(this->at + i * SIZE + from + 4 * t);
		const int byte = (2 * second + i) * SIZE + from, phase = byte % 4;
		const unsigned char *p = this->at + 4 * t + (byte - phase);
		return phase ? __funnelshift_r(word(p), word(p + 4), 8 * phase) : word(p);
	}
	__device__ __forceinline__ void advance(int) {
		if (!WORDS || second) this->at += (WORDS ? 4 : 2) * SIZE;
		second ^= 1;
	}
};

// A scale, a zero point of 0 to 16, and codes above it.
template <bool WORDS> struct I4 : Odd<19, WORDS> {
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned first = this->four(i, 0, 0), bytes = this->four(i, 3, this->t);
		p.scale[0] = p.scale[1] = this->scale(first), p.low = 0;
		const unsigned zero = 0xC300C300u + __byte_perm(first, 0, 0x4242); // and 128, negative
#pragma unroll
		for (int e = 0; e < 4; e++) p.q[e] = add_bf16x2(and_or(bytes >> (e % 2 * 8 + e / 2 * 4), 0x000f000f, 0x43004300u), zero);
	}
};

// A power of two, halved, and floats of 4 bits, doubled. With the exponent's offset of bf16 they are 2⁻¹²⁷ times that.
template <bool WORDS> struct E2M1_E8M0 : Odd<17, WORDS> {
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned power = this->at[(WORDS ? 2 * this->second + i : i) * Odd<17, WORDS>::BYTES], bytes = this->four(i, 1, this->t);
		p.scale[0] = p.scale[1] = __uint_as_float(power < 2 ? 0x200000u << power : (power - 1) << 23), p.low = 0;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const int shift = e % 2 * 8 + e / 2 * 4;
			const unsigned size = shift > 6 ? bytes >> (shift - 6) : bytes << (6 - shift);
			p.q[e] = multiply_bf16x2(and_or(bytes << (12 - shift), 0x80008000, size & 0x01c001c0), 0x7f007f00);
		}
	}
};

struct E4M3_BF16 : Blocks<34> {
	static constexpr bool NANS = true;
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *block = at + i * BYTES;
		p.scale[0] = p.scale[1] = __uint_as_float((unsigned)*reinterpret_cast<const unsigned short *>(block) << 16), p.low = 0;
		floats_of(p.q, p.nan[0], halves(block + 2 + 4 * t)), floats_of(p.q + 2, p.nan[1], halves(block + 18 + 4 * t));
	}
};

struct E4M3_F32 : Blocks<36> {
	static constexpr bool NANS = true;
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *block = at + i * BYTES;
		p.scale[0] = p.scale[1] = __uint_as_float(word(block)), p.low = 0;
		floats_of(p.q, p.nan[0], word(block + 4 + 4 * t)), floats_of(p.q + 2, p.nan[1], word(block + 20 + 4 * t));
	}
};

// Scales and lows of the eight groups of Q4_K and Q5_K, 6 bits each: the first four of both are
// the low bits of bytes 0 to 7; the last four have 4 bits in bytes 8 to 11 and the rest above
// the others'.
struct Groups {
	static constexpr int ELEMS = 256, ABOVE = 128;
	static constexpr bool ALIGNED = true, LOW = true, HALVES = false, GROUPS = true, NANS = false, WORDS = false;
	const unsigned char *block, *at; // at: the thread's first bytes of what has the low and the high 4 bits
	float d;
	unsigned scales, later_scales; // of the groups from here on, and of the last four
	int pair;
	__device__ __forceinline__ void open(const unsigned char *from, const unsigned char *first, int i) {
		block = from, at = first + 32 * i, pair = i;
		const unsigned a = word(block + 4);
		d = half_of(word(block));
		later_scales = and_or(word(block + 12), 0x0f0f0f0f, a >> 2 & 0x30303030);
		scales = (pair < 2 ? a & 0x3f3f3f3f : later_scales) >> pair % 2 * 16;
	}
	__device__ __forceinline__ void part(Part &p, int i) const {
		p.scale[0] = p.scale[1] = d * (float)(scales >> 8 * i & 255);
		p.low = factor() * (float)(lows(pair / 2) >> (pair % 2 * 16 + 8 * i) & 255);
	}
	// The lows of the first four groups or of the last, and their factor.
	__device__ __forceinline__ unsigned lows(int last) const {
		const unsigned b = word(block + 8);
		return last ? and_or(word(block + 12) >> 4, 0x0f0f0f0f, b >> 2 & 0x30303030) : b & 0x3f3f3f3f;
	}
	__device__ __forceinline__ float factor() const { return half_at(block + 2); }
	// Those of groups 2t and 2t+1 as a pair of bf16.
	__device__ __forceinline__ unsigned two_lows(int t) const {
		return add_bf16x2(__byte_perm(lows(t / 2), 0x43, t % 2 ? 0x4342 : 0x4140), 0xC300C300u);
	}
	__device__ __forceinline__ void advance(int) {
		at += 32, pair++;
		scales = pair == 2 ? later_scales : scales >> 16;
	}
};

struct Q4_K : Groups {
	static constexpr int BYTES = 144;
	__device__ __forceinline__ void open(const unsigned char *block, int pair, int t, int) { Groups::open(block, block + 16 + 4 * t, pair); }
	__device__ __forceinline__ void part(Part &p, int i) const {
		Groups::part(p, i);
#pragma unroll
		for (int e = 0; e < 4; e++) p.q[e] = integers<-128>(word(at + e / 2 * 16) >> (4 * i + e % 2 * 8), 0x000f000f);
	}
};

struct Q5_K : Groups {
	static constexpr int BYTES = 176;
	unsigned fifths[2]; // the groups from here on have the low bits of each byte
	__device__ __forceinline__ void open(const unsigned char *block, int pair, int t, int) {
		Groups::open(block, block + 48 + 4 * t, pair);
		fifths[0] = word(block + 16 + 4 * t) >> 2 * pair, fifths[1] = word(block + 32 + 4 * t) >> 2 * pair;
	}
	__device__ __forceinline__ void part(Part &p, int i) const {
		Groups::part(p, i);
#pragma unroll
		for (int h = 0; h < 2; h++) bytes_of<-128>(p.q + 2 * h, and_or(word(at + 16 * h) >> 4 * i, 0x0f0f0f0f, (fifths[h] >> i & 0x01010101) << 4));
	}
	__device__ __forceinline__ void advance(int i) {
		Groups::advance(i);
		fifths[0] >>= 2, fifths[1] >>= 2;
	}
};

// Of a half of 128 elements, pair 0 has the low 4 bits of 64 bytes and pair 1 the high ones, and
// 2 bits more of each element are in 32 bytes, first and second element of pair 0 below those of
// pair 1.
struct Q6_K {
	static constexpr int ELEMS = 256, BYTES = 210, ABOVE = 0;
	static constexpr bool ALIGNED = false, LOW = false, HALVES = true, GROUPS = false, NANS = false, WORDS = false;
	const unsigned char *block;
	float d;
	int pair, t;
	__device__ __forceinline__ void open(const unsigned char *at, int first, int thread, int) {
		block = at, pair = first, t = thread;
		d = half_at(block + 208);
	}
	__device__ __forceinline__ void part(Part &p, int i) const {
		const unsigned char *at = block + 4 * t + 64 * (pair / 2) + 32 * i, *high = block + 4 * t + 128 + 32 * (pair / 2), *scales = block + 192 + 4 * pair + 2 * i;
		const int shift = pair % 2 * 4;
		p.low = 0;
#pragma unroll
		for (int h = 0; h < 2; h++) {
			p.scale[h] = d * (float)(signed char)scales[h];
			bytes_of<32>(p.q + 2 * h, and_or(halves(at + 16 * h) >> shift, 0x0f0f0f0f, (halves(high + 16 * h) >> (shift + 2 * i) & 0x03030303) << 4));
		}
	}
	__device__ __forceinline__ void advance(int) { pair++; }
};

} // namespace blocks
