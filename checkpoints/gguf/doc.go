// Package gguf reads GGUF files, the format of llama.cpp: typed metadata under keys, and tensors in
// plain or quantised formats (package formats).
//
//	f, err := gguf.Open("SmolLM2-135M-Instruct.Q4_1.gguf")
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	layers, ok, err := f.Int("llama.block_count")
//
// A file of version 2 or 3, little-endian, is
//
//	"GGUF"  version uint32  tensors uint64  pairs uint64
//	pairs:   key string, type uint32, value
//	tensors: name string, rank uint32, dimensions uint64 innermost first, type uint32, offset uint64
//	padding to general.alignment (32 unless given), then the tensors' blocks, padded likewise
//
// where a string is a uint64 length and its bytes, and an array the type of its elements, their
// number as uint64 and they themselves. A model may be split into files
// NAME-00001-of-00003.gguf; the first has the metadata.
//
// Files are not trusted: the whole structure is checked before anything is handed out, nothing is
// allocated by a number that the file merely claims, and errors name the file, the key or tensor,
// what was found and what was wanted. What is damaged is checkpoints.ErrCorrupt.
package gguf
