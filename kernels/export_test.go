package kernels

// ChunkRows is what backends implement Chunker by.
func ChunkRows(processors int, memory, rowBytes int64) int {
	return chunkRows(processors, memory, rowBytes)
}
