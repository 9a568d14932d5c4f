// The primitives of hopper.h for g++; hopper.cpp does them.
#pragma once
#include "cuda_host.h"

namespace hc {

unsigned shared_address(const void *p, Site at);
void mbarrier_init(void *b, unsigned count, Site at);
void mbarrier_init_fence();
void mbarrier_arrive(void *b, unsigned bytes, Site at);
void mbarrier_wait(void *b, unsigned parity, Site at);
void tensor_map_acquire(const void *map);
void bulk_load(void *dst, const void *map, int column, int row, void *b, Site at);
void shared_store_16(void *dst, const void *v, Site at);
void shared_store_fence();
void set_registers(int n, bool more, Site at);
void wgmma_fence(Site at);
void wgmma_commit(Site at);
void wgmma_wait(int groups, Site at);
// d [64, 2·registers], of which the calling thread has registers; a in registers or by a_matrix.
void wgmma(float *d, int registers, const unsigned *a, unsigned long long a_matrix, unsigned long long b_matrix, bool b_along_n, bool accumulate, Site at);

} // namespace hc

inline unsigned shared_address(const void *p, HC_SITE) { return hc::shared_address(p, at); }
inline void mbarrier_init(unsigned long long *b, unsigned count, HC_SITE) { hc::mbarrier_init(b, count, at); }
inline void mbarrier_init_fence() { hc::mbarrier_init_fence(); }
inline void mbarrier_arrive(unsigned long long *b, HC_SITE) { hc::mbarrier_arrive(b, 0, at); }
inline void mbarrier_arrive_expect(unsigned long long *b, unsigned bytes, HC_SITE) { hc::mbarrier_arrive(b, bytes, at); }
inline void mbarrier_wait(unsigned long long *b, unsigned parity, HC_SITE) { hc::mbarrier_wait(b, parity, at); }
inline void tensor_map_acquire(const TensorMap *map) { hc::tensor_map_acquire(map); }
inline void bulk_load(void *dst, const TensorMap *map, int column, int row, unsigned long long *b, HC_SITE) {
	hc::bulk_load(dst, map, column, row, b, at);
}
inline void shared_store_16(void *dst, uint4 v, HC_SITE) { hc::shared_store_16(dst, &v, at); }
inline void shared_store_fence() { hc::shared_store_fence(); }
template <int N> void release_registers(HC_SITE) { hc::set_registers(N, false, at); }
template <int N> void claim_registers(HC_SITE) { hc::set_registers(N, true, at); }
inline void wgmma_fence(HC_SITE) { hc::wgmma_fence(at); }
inline void wgmma_commit(HC_SITE) { hc::wgmma_commit(at); }
template <int N> void wgmma_wait(HC_SITE) { hc::wgmma_wait(N, at); }
// The compiler must not keep an accumulator in registers: the wait writes it.
template <int N> void wgmma_pin(float (&d)[N]) { asm volatile("" ::"r"(&d) : "memory"); }
template <int N> void wgmma_shared(float (&d)[N], unsigned long long a, unsigned long long b, bool accumulate, HC_SITE) {
	hc::wgmma(d, N, nullptr, a, b, false, accumulate, at);
}
template <int N> void wgmma_registers(float (&d)[N], const unsigned *a, unsigned long long b, HC_SITE) {
	hc::wgmma(d, N, a, 0, b, true, true, at);
}
