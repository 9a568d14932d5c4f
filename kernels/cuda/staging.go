//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"unsafe"

	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// staging is pinned memory of the host, through which all copies to the device go: from
// ordinary memory the driver may wait for the stream before it copies. Its two halves are
// filled in turn; a half is filled again when the device has read it.
type staging struct {
	halves  [2]stagingHalf
	current int
	used    int64 // bytes of the current half
	failed  bool  // there is no pinned memory: the driver stages the copies
}

type stagingHalf struct {
	memory []byte
	read   cu.Event // recorded where the half was left
	left   bool
}

// stagingBytes is the room of a half.
const stagingBytes = 8 << 20

func (b *cuda) makeStaging() {
	for i := range b.staging.halves {
		h := &b.staging.halves[i]
		var err error
		if h.memory, err = cudadriver.AllocPinned(stagingBytes); err == nil {
			h.read, err = cu.MakeEvent(cu.DisableTiming)
		}
		if err != nil {
			b.staging.failed = true
			return
		}
	}
}

// copyIn queues a copy of data to the device. data may change when it returns.
func (b *cuda) copyIn(op string, to cu.DevicePtr, data []byte) {
	b.calls++
	s := &b.staging
	if s.failed {
		b.try(op, cu.MemcpyHtoDAsync(to, unsafe.Pointer(&data[0]), int64(len(data)), b.stream))
		return
	}
	for len(data) > 0 {
		if s.used == stagingBytes {
			b.try(op, s.halves[s.current].read.Record(b.stream))
			s.halves[s.current].left = true
			s.current, s.used = 1-s.current, 0
			if next := &s.halves[s.current]; next.left {
				b.try(op, next.read.Synchronize())
			}
		}
		n := int64(copy(s.halves[s.current].memory[s.used:], data))
		b.try(op, cu.MemcpyHtoDAsync(to, unsafe.Pointer(&s.halves[s.current].memory[s.used]), n, b.stream))
		s.used = min(stagingBytes, (s.used+n+63)/64*64)
		to, data = to+cu.DevicePtr(n), data[n:]
	}
}
