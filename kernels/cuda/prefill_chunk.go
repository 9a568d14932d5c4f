package cuda

// Tiles of a large product in bf16 are productTile rows of a weight by productTile/2 rows
// of a prompt, a tile per processor at a time.
const productTile = 256

// minChunk is the least number of rows of a chunk: a device is full from there on, if not
// to the last processor.
const minChunk = 512

// chunkMemory is the part of a device's memory that a chunk may take.
const chunkMemory = 32

// ChunkRows is the number of rows at which products with weights of a multiple of 1,024
// rows fill whole waves of tiles, all processors at once; half of it, and so on, where
// that would take too much memory. It depends on the device alone and not on what is free
// there, so that two runs have the same chunks and the same bits.
func ChunkRows(processors int, memory, rowBytes int64) int {
	const row, step = 1024 / productTile, productTile / 2
	n := processors / row * step
	for n > minChunk && int64(n)*rowBytes > memory/chunkMemory {
		n = n / 2 / step * step
	}
	return max(n, minChunk)
}
