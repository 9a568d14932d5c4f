package kernels

// Traits are what the memory that a backend's operations take depends on; on the host
// all are zero.
type Traits struct {
	Device     bool // it has memory of its own
	Exact      bool // blocks are not rounded up
	Graphs     bool // it records graphs
	Processors int
	Shared     int   // bytes of shared memory that a block may have
	Memory     int64 // of the device in all
}

// BlockClass is the size of a device's block for so many bytes: eight steps between powers of
// two, so that blocks are used again for tensors that are a little smaller.
func BlockClass(bytes int64) int64 {
	step := int64(256)
	for step*16 < bytes {
		step *= 2
	}
	return (bytes + step - 1) / step * step
}

// RoomFor is the number of rows, of width elements each, that a tensor of n rows has memory
// for: blocks of a device are a little larger than what is asked for.
func (t Traits) RoomFor(d DType, n, width int) int {
	if !t.Device || t.Exact || width == 0 { // there are caches in blocks, whose elements have no size
		return n
	}
	row := int64(width) * int64(d.Size())
	return int(BlockClass(int64(n)*row) / row)
}

// Tiles of a large product in bf16 are productTile rows of a weight by productTile/2 rows
// of a prompt, a tile per processor at a time.
const productTile = 256

// minChunk is the least number of rows of a chunk: a device is full from there on, if not
// to the last processor.
const minChunk = 512

// chunkMemory is the part of a device's memory that a chunk may take.
const chunkMemory = 32

// PrefillChunk is how many rows of a prompt should go through a layer at once, where each takes so many bytes of memory
// while they are in a layer; 0 on the host, which leaves it to the caller. Where it is not 0, few rows more in a pass cost next
// to nothing, while a pass of their own reads all weights again.
//
// Products with weights of a multiple of 1,024 rows fill whole waves of tiles, all processors at once; half of it, and so on, where
// that would take too much memory. It depends on the device alone and not on what is free
// there, so that two runs have the same chunks and the same bits.
func (t Traits) PrefillChunk(rowBytes int64) int {
	if !t.Device {
		return 0
	}
	const row, step = 1024 / productTile, productTile / 2
	n := t.Processors / row * step
	for n > minChunk && int64(n)*rowBytes > t.Memory/chunkMemory {
		n = n / 2 / step * step
	}
	return max(n, minChunk)
}
