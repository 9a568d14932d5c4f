//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"
	"glimpse/kernels/fatbin"

	"gorgonia.org/cu"
)

// kernelNames lists the kernels of every fat binary. The launchers of each source add them.
var kernelNames = make(map[string][]string)

// kernelsOf adds the kernels of a source, which is called like the file without its .cu.
func kernelsOf(source string, names ...string) struct{} {
	kernelNames[source] = names
	return struct{}{}
}

// loadKernels loads all fat binaries, and every kernel for good: a driver that loads
// lazily would do so at the first launch, which may be one that is being captured.
func (b *cuda) loadKernels() {
	missing := maps.Clone(kernelNames)
	b.try("load kernels", eachFatBinary(func(file string, data []byte) error {
		names, ok := kernelNames[file]
		delete(missing, file)
		if !ok || file == "attention_hopper" && !b.sm90a {
			return nil // machine code that other devices refuse
		}
		b.loadFatBinary(file, names, data)
		return nil
	}))
	delete(missing, "attention_hopper")
	if len(missing) > 0 {
		b.try("load kernels", fmt.Errorf("fat binaries are missing: %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", ")))
	}
}

func (b *cuda) loadFatBinary(file string, names []string, data []byte) {
	op := "load " + file + ".fatbin"
	images, err := fatbin.Parse(data)
	b.try(op, err)
	module, err := cu.LoadData(string(data))
	if err != nil {
		b.try(op, fmt.Errorf("%w: it has %v", err, images))
	}
	for _, name := range names {
		f, err := module.Function(name)
		if err != nil {
			b.try(op, fmt.Errorf("kernel %s: %w", name, err))
		}
		b.try(op+": kernel "+name, cudadriver.Load(f))
		// The attention kernels hold tiles of a size that heads decide, others their rows.
		if strings.HasPrefix(file, "attention") || strings.HasPrefix(file, "few_") {
			static, err := f.Attribute(cu.SharedSizeBytes)
			b.try(op+": kernel "+name, err)
			b.try(op+": kernel "+name, cudadriver.AllowShared(f, b.shared-static))
		}
		b.functions[name] = f
	}
	b.images[file], err = use(images, b.functions[names[0]])
	b.try(op, err)
}

// maxSharedAttribute is the dynamic shared memory that a block may ask for: 99 KB or
// more from compute capability 8.0 on. Attention of heads of 128 elements needs 52 KB
// and of 256 elements 103 KB.
const maxSharedAttribute cu.DeviceAttribute = 97

// size is an argument of type size_t.
type size uint64

// launch queues a kernel. Arguments are device addresses (cu.DevicePtr), int, size,
// float32 and float64 values.
func (b *cuda) launch(name string, grid [3]int, threads, shared int, args ...any) {
	if grid[0] == 0 || grid[1] == 0 || grid[2] == 0 {
		return
	}
	f, ok := b.functions[name]
	if !ok {
		panic("kernels: no kernel " + name)
	}
	slots := make([]uint64, len(args))
	pointers := make([]unsafe.Pointer, len(args))
	for i, a := range args {
		at := unsafe.Pointer(&slots[i])
		pointers[i] = at
		switch a := a.(type) {
		case cu.DevicePtr:
			slots[i] = uint64(a)
		case int:
			if int(int32(a)) != a {
				panic(fmt.Sprintf("kernels: %s: argument %d is %d", name, i, a))
			}
			*(*int32)(at) = int32(a)
		case size:
			slots[i] = uint64(a)
		case float32:
			*(*float32)(at) = a
		case float64:
			*(*float64)(at) = a
		default:
			panic(fmt.Sprintf("kernels: %s: argument %d of type %T", name, i, a))
		}
	}
	if b.segment != nil {
		b.segment.ops = append(b.segment.ops, operation{name, f, grid, threads, shared, slots})
		return
	}
	if b.beginsEarly(name) {
		b.try(name, cudadriver.LaunchEarly(f, grid, threads, shared, b.queue(), slots))
	} else {
		b.try(name, f.Launch(grid[0], grid[1], grid[2], threads, 1, 1, shared, b.queue(), pointers))
	}
	b.note(name)
}

// elementThreads are the threads of a block where each has one element.
const elementThreads = 256

// each queues a kernel with one thread for each of n elements.
func (b *cuda) each(name string, n int, args ...any) {
	b.launch(name, [3]int{(n + elementThreads - 1) / elementThreads, 1, 1}, elementThreads, 0, args...)
}

// mapSpan are the elements of a block of a kernel that maps (map.h).
const mapSpan = 256 * 4 * 4

// maps queues a kernel of map.h over n elements.
func (b *cuda) maps(name string, n int, args ...any) {
	b.launch(name, [3]int{blocks(n, mapSpan), 1, 1}, elementThreads, 0, args...)
}

// upload copies host data into temporary memory.
func upload[T any](b *cuda, op string, data []T) cu.DevicePtr {
	if len(data) == 0 {
		return 0
	}
	bytes := int64(len(data)) * int64(unsafe.Sizeof(data[0]))
	list := unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), bytes)
	if b.segment != nil {
		return b.segment.upload(b, op, list)
	} else if b.rec != nil {
		return b.rec.upload(b, op, list)
	}
	at := b.temporary(op, bytes)
	b.copyIn(op, at, list)
	return at
}

// at is the address of a tensor of the given type, 0 for nil.
func (b *cuda) at(op string, t *kernels.Tensor, d kernels.DType) cu.DevicePtr {
	if t == nil {
		return 0
	}
	if t.DType != d {
		panic(fmt.Sprintf("kernels: %s: %s tensor %v, want %s", op, t.DType, t.Shape, d))
	}
	return b.address(op, t)
}

func (b *cuda) address(op string, t *kernels.Tensor) cu.DevicePtr {
	block, offset := t.Block()
	m, ok := block.(*cudaBlock)
	if !ok || m.b.cudaDevice != b.cudaDevice {
		panic(fmt.Sprintf("kernels: %s: tensor %v is not in the memory of %s", op, t.Shape, b.device))
	}
	if b.segment != nil {
		b.segment.keep = append(b.segment.keep, m)
	} else if b.rec != nil {
		b.rec.keep = append(b.rec.keep, m)
	}
	return m.at + cu.DevicePtr(offset)
}

// f32 are the addresses of F32 tensors as kernel arguments.
func (b *cuda) f32(op string, t *kernels.Tensor) cu.DevicePtr { return b.at(op, t, kernels.F32) }
