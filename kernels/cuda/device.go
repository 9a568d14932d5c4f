//go:build gpu && linux && (amd64 || arm64)

// Package cuda is the backend "cuda" on NVIDIA's devices: the launchers of the kernels in its
// .cu files, each beside its source, and what holds them: memory, graphs.
package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

func init() {
	kernels.SetCUDA(kernels.DeviceKind{Open: openCUDA, Devices: devices, Check: checkDevice})
	// Without a device the name is known to Open, which says what is missing, but
	// tests over all backends have nothing to run on. A driver that was asked for by
	// name is a promise: there a failure is one.
	if devices().Usable() == nil || cudadriver.Named() {
		kernels.Backends.Add("cuda", func() (kernels.Backend, error) { return openCUDA(0) })
	}
}

// oldestVersion is the oldest CUDA that a driver may be of: it has the functions that are
// called here and takes the fat binaries in the program.
const oldestVersion = 12000

// runsKernels tells whether a driver of that version loads the kernels.
func runsKernels(version int) error {
	if version >= oldestVersion {
		return nil
	}
	return fmt.Errorf("the driver is of CUDA %d.%d, want %d.%d or later: install a driver of version 525 or newer",
		version/1000, version%1000/10, oldestVersion/1000, oldestVersion%1000/10)
}

// devices reports driver, devices and libraries.
func devices() kernels.DeviceReport {
	r := kernels.DeviceReport{Built: true}
	path, err := cudadriver.Driver()
	r.Driver = path
	// The library's real name has the driver's version: libcuda.so.535.104.05.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		r.Driver = real
	}
	if err != nil {
		r.Missing = append(r.Missing, err.Error())
		return r
	}
	v := cu.Version()
	r.Version = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	if err := runsKernels(v); err != nil {
		r.Missing = append(r.Missing, err.Error())
	}
	n, err := cu.NumDevices()
	if err != nil {
		r.Missing = append(r.Missing, fmt.Sprintf("CUDA driver %s: number of devices: %v", path, err))
	}
	for i := range n {
		d, err := describe(i)
		if err != nil {
			r.Missing = append(r.Missing, err.Error())
			continue
		}
		r.Devices = append(r.Devices, d)
		if d.Capability < "8.0" && len(d.Capability) == 3 {
			r.Missing = append(r.Missing, fmt.Sprintf("%s: %s has compute capability %s, want 8.0 or more", d.Name, d.Model, d.Capability))
		}
	}
	if n == 0 && err == nil {
		r.Missing = append(r.Missing, fmt.Sprintf("CUDA driver %s: no device", path))
	}
	if blas, err := cudadriver.OpenBlas(); err != nil {
		r.Missing = append(r.Missing, err.Error())
	} else {
		r.Libraries = append(r.Libraries, kernels.Library{Name: "cuBLASLt", Path: blas.Path, Version: fmt.Sprintf("%d.%d.%d", blas.Version/10000, blas.Version/100%100, blas.Version%100)})
	}
	r.Libraries = append(r.Libraries, describeNCCL()...)
	return r
}

func describe(ordinal int) (kernels.Device, error) {
	d := kernels.Device{Name: fmt.Sprintf("cuda:%d", ordinal), Free: -1}
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		return d, fmt.Errorf("%s: %w", d.Name, err)
	}
	if d.Model, err = dev.Name(); err != nil {
		return d, fmt.Errorf("%s: name: %w", d.Name, err)
	}
	d.Model = strings.TrimRight(d.Model, "\x00")
	if d.Memory, err = dev.TotalMem(); err != nil {
		return d, fmt.Errorf("%s: memory: %w", d.Name, err)
	}
	major, err := dev.Attribute(cu.ComputeCapabilityMajor)
	if err != nil {
		return d, fmt.Errorf("%s: compute capability: %w", d.Name, err)
	}
	minor, err := dev.Attribute(cu.ComputeCapabilityMinor)
	if err != nil {
		return d, fmt.Errorf("%s: compute capability: %w", d.Name, err)
	}
	d.Capability = fmt.Sprintf("%d.%d", major, minor)
	// What is free is known only where a context is, and one is made only where a
	// backend is open: it takes half a gigabyte.
	if b := opened.get(ordinal); b != nil {
		b.do("cuMemGetInfo", func() {
			d.Free, _, err = b.memInfo()
			b.try("cuMemGetInfo", err)
			d.Attention, d.Kernels = b.describeAttention(), b.describeImages()
		})
	}
	return d, nil
}

// opened are the backends of this process: one per device, since they share its
// memory.
var opened = &cudaBackends{byOrdinal: make(map[int]*cuda)}

type cudaBackends struct {
	mu        sync.Mutex
	byOrdinal map[int]*cuda
}

func (o *cudaBackends) get(ordinal int) *cuda {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byOrdinal[ordinal]
}

// checkDevice is kernels.DeviceKind.Check.
func checkDevice(ordinal int) error {
	_, _ = openNCCL() // Devices tells of it
	_, err := openCUDA(ordinal)
	return err
}

func openCUDA(ordinal int) (_ kernels.Backend, err error) {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if b := opened.byOrdinal[ordinal]; b != nil {
		return b, nil
	}
	name := fmt.Sprintf("cuda:%d", ordinal)
	if _, err := cudadriver.Driver(); err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("device %s: number of devices: %w", name, err)
	}
	if ordinal >= n {
		return nil, fmt.Errorf("device %s: the driver has %d devices", name, n)
	}
	blas, err := cudadriver.OpenBlas()
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	limit, err := limitFromEnvironment()
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	if err := runsKernels(cu.Version()); err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	device, err := cu.GetDevice(ordinal)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	context, err := device.RetainPrimaryCtx()
	if err != nil {
		return nil, fmt.Errorf("device %s: context: %w", name, err)
	}
	b := newCUDA(cuda{cudaDevice: &cudaDevice{
		device: name, ordinal: ordinal, context: context, blas: blas, functions: make(map[string]cu.Function), images: make(map[string]imageUse), pool: make(map[int64][]cu.DevicePtr),
		exact: os.Getenv("GLIMPSE_CUDA_EXACT") != "", wait: os.Getenv("GLIMPSE_CUDA_WAIT") != "", limit: limit,
	}})
	defer kernels.CatchDevice(&err)
	b.do("open", func() {
		b.try("open", blas.Create(context))
		b.model, err = device.Name()
		b.try("open", err)
		b.processors, err = device.Attribute(cu.MultiprocessorCount)
		b.try("open", err)
		b.shared, err = device.Attribute(maxSharedAttribute)
		b.try("open", err)
		b.memory, err = device.TotalMem()
		b.try("open", err)
		if limit > 0 {
			b.memory = min(b.memory, limit)
		}
		major, err := device.Attribute(cu.ComputeCapabilityMajor)
		b.try("open", err)
		minor, err := device.Attribute(cu.ComputeCapabilityMinor)
		b.try("open", err)
		b.sm90a = hasHopper(major, minor)
		b.stream, err = cu.MakeStream(cu.NonBlocking)
		b.try("open: stream", err)
		b.makeStaging()
		b.loadKernels()
	})
	opened.byOrdinal[ordinal] = b
	return b, nil
}

// cuda computes in float32 on one device. All work is queued on one stream, in the
// order of the calls, so memory can be handed on from one operation to the next
// without waiting; only reading results waits. It is safe for concurrent use.
type cuda struct {
	kernels.Decomposed
	*cudaDevice
	// rec is what operations are recorded in instead of being queued: of the backend of
	// a graph, while it is recorded; else nil.
	rec     *recording
	segment *segment // that is prepared instead; else nil
	replays bool     // it is the backend of a graph
}

// newCUDA is a backend whose operations are its own.
func newCUDA(of cuda) *cuda {
	b := &of
	b.Decomposed = kernels.Decompose(b)
	return b
}

// cudaDevice is what the backends of a device share.
type cudaDevice struct {
	device     string // cuda:0
	ordinal    int
	model      string // what it is
	context    cu.CUContext
	stream     cu.Stream
	staging    staging
	processors int
	shared     int   // bytes of dynamic shared memory that a block may have
	memory     int64 // bytes of the device, or that the program may take
	blas       *cudadriver.Blas
	functions  map[string]cu.Function
	images     map[string]imageUse // by fat binary
	sm90a      bool                // kernels for Hopper are loaded

	// exact makes every allocation, temporary ones included, one of its own of just
	// its size, so that a driver which guards allocations sees every overrun. wait
	// waits after every launch, so that the kernel that failed is the one named.
	exact, wait bool

	mu      sync.Mutex // held by every operation
	queued  []string   // kernels launched since the last wait, the last few
	calls   int64      // launches, copies and graphs queued so far
	temps   []cudaMemory
	scratch cu.DevicePtr // temporaries of one operation
	size    int64
	used    int64
	taken   int64 // by the operation, in blocks before this one, too

	workspace cu.DevicePtr // of all products, maxWorkspace bytes; 0: there was none yet

	held, peak int64 // bytes taken from the driver, now and at most
	limit      int64 // of held; 0: none

	pool      map[int64][]cu.DevicePtr // free blocks by size
	live      int64                    // bytes in blocks
	collectAt int64                    // of live, when the collector should look for dead tensors
	blocks    int                      // number of live blocks
	blocksAt  int                      // of blocks, as collectAt
	hostBytes int64                    // that the host has read

	deadMu     sync.Mutex
	dead       []cudaMemory // blocks that no tensor refers to any more
	deadGraphs []*graphMemory

	graphsWarned   bool // that a graph could not be recorded
	productsWarned bool // that a product is one of widened matrices
}

type cudaMemory struct {
	at   cu.DevicePtr
	size int64
}

func (b *cuda) Name() string           { return "cuda" }
func (b *cuda) Model() string          { return strings.TrimRight(b.model, "\x00") }
func (b *cuda) Compute() kernels.DType { return kernels.F32 }

// do runs f on a thread that has the device's context. f panics with a
// *DeviceError where the device fails.
func (b *cuda) do(op string, f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.try(op, cu.SetCurrentContext(b.context))
	b.used, b.taken = 0, 0
	if b.segment != nil {
		b.segment.memory.used = 0
	} else if b.rec != nil {
		b.rec.memory.used = 0
	}
	f()
	for _, t := range b.temps {
		b.giveBack(op, t)
	}
	b.temps = b.temps[:0]
}

func (b *cuda) try(op string, err error) {
	if err == nil {
		return
	}
	if len(b.queued) > 0 {
		err = fmt.Errorf("%w (kernels since the last wait: %s; GLIMPSE_CUDA_WAIT=1 finds the one)", err, strings.Join(b.queued, ", "))
	}
	panic(&kernels.DeviceError{Device: b.device, Op: op, Err: err})
}

// synchronize waits until all queued work is done.
func (b *cuda) synchronize(op string) {
	b.mustNotRecord(op, "waits for the device")
	b.try(op, b.stream.Synchronize())
	b.queued = b.queued[:0]
}

// cudaBlock is memory of a device.
type cudaBlock struct {
	b    *cuda
	at   cu.DevicePtr
	size int64

	cleanup runtime.Cleanup // frees it once no tensor refers to it
}

func (m *cudaBlock) Address() uintptr { return uintptr(m.at) }

func (m *cudaBlock) Read(dst []byte, offset int) {
	m.b.do("read", func() {
		m.b.download("read", unsafe.Pointer(&dst[0]), m.at+cu.DevicePtr(offset), int64(len(dst)))
	})
	runtime.KeepAlive(m)
}

func (m *cudaBlock) Write(offset int, src []byte) {
	m.b.do("write", func() {
		m.b.mustNotRecord("write", "writes device memory from the host")
		m.b.copyIn("write", m.at+cu.DevicePtr(offset), src)
	})
	runtime.KeepAlive(m)
}

// Alloc implements Allocator. The memory is handed out again once the garbage
// collector has found that no tensor refers to it.
func (b *cuda) Alloc(d kernels.DType, shape ...int) *kernels.Tensor {
	if b.segment != nil {
		return b.segment.tensor(b, d, shape)
	}
	bytes := int64(d.Bytes(kernels.ShapeLen(shape)))
	m := &cudaBlock{b: b}
	t := kernels.NewInBlock(d, m, shape...)
	if bytes == 0 {
		return t
	}
	b.do("Alloc", func() { m.at, m.size = b.allocate(bytes) })
	m.cleanup = runtime.AddCleanup(m, func(freed cudaMemory) {
		b.deadMu.Lock()
		b.dead = append(b.dead, freed)
		b.deadMu.Unlock()
	}, cudaMemory{m.at, m.size})
	return t
}

// minCollect is the growth of live memory between two looks for dead tensors that is
// not worth a look: tensors are small on the host, so its own collector is in no
// hurry.
const minCollect = 1 << 30

// allocate takes memory from the pool or the device.
func (b *cuda) allocate(bytes int64) (cu.DevicePtr, int64) {
	size := b.class(bytes)
	b.reclaim()
	if b.live+size > b.collectAt && b.collectAt > 0 {
		b.collect(func() bool { return false })
		b.collectAt = 2*b.live + minCollect
	}
	b.collectAt = max(b.collectAt, minCollect)
	if b.exact && b.blocks > b.blocksAt { // a driver that guards every block is slow with many
		b.collect(func() bool { return false })
		b.blocksAt = b.blocks + 300
	}
	take := func() (cu.DevicePtr, bool) {
		if free := b.pool[size]; len(free) > 0 {
			b.pool[size] = free[:len(free)-1]
			return free[len(free)-1], true
		}
		return b.obtain("Alloc", size)
	}
	at, ok := take()
	if !ok {
		b.collect(func() bool { at, ok = take(); return ok })
	}
	if !ok {
		b.emptyPool("Alloc")
		at, ok = take()
	}
	if !ok && b.dropScratch("Alloc") {
		at, ok = take()
	}
	if !ok {
		b.outOfMemory("Alloc", size)
	}
	b.live += size
	b.blocks++
	return at, size
}

// class is the size of the block for so many bytes.
func (b *cuda) class(bytes int64) int64 {
	if b.exact {
		return bytes
	}
	return kernels.BlockClass(bytes)
}

// reclaim takes back what the collector found.
func (b *cuda) reclaim() {
	b.deadMu.Lock()
	dead, graphs := b.dead, b.deadGraphs
	b.dead, b.deadGraphs = nil, nil
	b.deadMu.Unlock()
	for _, m := range graphs {
		m.free(b)
	}
	for _, m := range dead {
		b.live -= m.size
		b.blocks--
		if b.exact {
			b.giveBack("free", m)
		} else {
			b.pool[m.size] = append(b.pool[m.size], m.at)
		}
	}
}

// collect runs the garbage collector and takes back what it finds, until enough
// says so or nothing more comes: cleanups run a little after the collection.
func (b *cuda) collect(enough func() bool) {
	runtime.GC()
	for range 20 {
		before := b.live
		b.reclaim()
		if enough() {
			return
		}
		if b.live == before {
			time.Sleep(time.Millisecond)
		}
	}
}

// collectAll collects what finalizers of other objects keep, too.
func (b *cuda) collectAll() {
	for range 3 {
		b.collect(func() bool { return false })
	}
}

// inUse is the device memory of live tensors after a collection; for tests.
func (b *cuda) inUse() (bytes int64) {
	b.do("inUse", func() {
		b.collectAll()
		bytes = b.live
	})
	return bytes
}

// temporary is device memory until the end of the operation. Operations follow each
// other on the stream, so the next one may be given the same memory at once.
func (b *cuda) temporary(op string, bytes int64) cu.DevicePtr {
	if bytes == 0 {
		return 0
	}
	if b.segment != nil {
		return b.segment.temporary(b, op, bytes)
	}
	if b.rec != nil {
		return b.rec.memory.temporary(b, op, bytes)
	}
	if b.exact {
		at := b.secure(op, bytes)
		b.temps = append(b.temps, cudaMemory{at, bytes})
		return at
	}
	const align = 256
	bytes = (bytes + align - 1) / align * align
	b.taken += bytes
	if b.used+bytes > b.size {
		if old := (cudaMemory{b.scratch, b.size}); b.scratch != 0 && b.used > 0 {
			b.temps = append(b.temps, old) // this operation may use it
		} else if b.scratch != 0 {
			b.giveBack(op, old)
		}
		size := max(b.taken, 1<<16) // all of the next operation of this kind fits
		b.scratch, b.size, b.used = 0, 0, 0
		at, ok := b.obtain(op, size)
		if !ok {
			size = bytes
			at = b.secure(op, size)
		}
		b.scratch, b.size = at, size
	}
	at := b.scratch + cu.DevicePtr(b.used)
	b.used += bytes
	return at
}
