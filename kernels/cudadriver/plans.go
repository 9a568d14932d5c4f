//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// #include "blaslt.h"
import "C"

import (
	"container/list"
	"errors"
	"fmt"
	"runtime"

	"gorgonia.org/cu"
)

// ProductPlan is a product with its algorithm.
type ProductPlan struct{ p *C.glimpse_plan }

// maxPlans are the plans that are kept, of all devices: for some fifty lengths of
// prompts. Each has about a kilobyte on the host, and takes some 50 µs to make again.
const maxPlans = 1024

// planKey adds the context, since algorithms are chosen for a device.
type planKey struct {
	context string
	Product
}

const notSupported = 15 // as in blaslt.c

// ErrNoAlgorithm is what cuBLASLt says of a product of that type and shape that it cannot compute.
var ErrNoAlgorithm = errors.New("not supported")

// Plan chooses an algorithm for a product on the current context's device, always the same
// one: where it was forgotten it is chosen again by the same rules. What a graph has
// recorded of a plan stays when the plan goes.
func (b *Blas) Plan(context cu.CUContext, p Product) (*ProductPlan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := planKey{context.String(), p}
	if plan, ok := b.plans.get(key); ok {
		return plan, nil
	}
	bit := func(v bool) C.int {
		if v {
			return 1
		}
		return 0
	}
	spec := C.glimpse_product{
		transposeA: bit(p.TransposeA), transposeB: bit(p.TransposeB), typeA: C.int(p.Type), typeC: F32,
		m: C.int64_t(p.M), n: C.int64_t(p.N), k: C.int64_t(p.K), lda: C.int64_t(p.LdA), ldb: C.int64_t(p.LdB), ldc: C.int64_t(p.LdC),
		alignA: C.uint32_t(p.AlignA), alignB: C.uint32_t(p.AlignB), alignC: C.uint32_t(p.AlignC), workspace: maxWorkspace,
		deviceFactors: bit(p.DeviceFactors),
	}
	handle, ok := b.handles[key.context]
	if !ok {
		return nil, fmt.Errorf("cuBLASLt %d: no handle for the context", b.Version)
	}
	plan := &ProductPlan{}
	if code := C.glimpse_blas_plan(&plan.p, handle, &spec); code != 0 {
		err := fmt.Errorf("cuBLASLt %d: no algorithm for %+v: status %d", b.Version, p, int(code))
		if code == notSupported {
			err = fmt.Errorf("%w: %w", ErrNoAlgorithm, err)
		}
		return nil, err
	}
	// Another device may be about to run a plan that is forgotten here.
	runtime.AddCleanup(plan, func(p *C.glimpse_plan) { C.glimpse_blas_free(p) }, plan.p)
	b.plans.put(key, plan)
	return plan, nil
}

// Plans is the number of plans that are not freed.
func Plans() int { return int(C.glimpse_blas_live()) }

// lru keeps the values that were used last.
type lru[K comparable, V any] struct {
	most  int
	at    map[K]*list.Element
	order list.List // of entries, the last used first
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func (l *lru[K, V]) get(key K) (value V, ok bool) {
	e, ok := l.at[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(lruEntry[K, V]).value, true
}

// put adds a key that is not there.
func (l *lru[K, V]) put(key K, value V) {
	if l.at == nil {
		l.at = make(map[K]*list.Element)
	}
	l.at[key] = l.order.PushFront(lruEntry[K, V]{key, value})
	if l.order.Len() > l.most {
		last := l.order.Back()
		delete(l.at, l.order.Remove(last).(lruEntry[K, V]).key)
	}
}
