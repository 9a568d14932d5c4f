// Package fatbin reads the headers of CUDA fat binaries: which images a driver can choose
// from. The driver takes the machine code of its device, or else compiles the PTX.
//
// A fat binary is a header of 16 bytes (magic number, version, header size, body size) and
// images one after another, each with a header of its own. The layout is not documented;
// what is read here is what fatbinary of CUDA 12 and 13 writes.
package fatbin

import (
	"encoding/binary"
	"fmt"
)

// Kinds of images.
const (
	PTX = 1 // text that the driver compiles
	ELF = 2 // machine code
)

const (
	magic        = 0xBA55ED50
	headerBytes  = 16
	imageBytes   = 64 // of an image's header that are read
	exactFlag    = 0x100000
	compressions = 0x2000 | 0x8000 // LZ4, zstd
)

// Image is one image of a fat binary.
type Image struct {
	Kind         int  // PTX or ELF
	Arch         int  // 90 of sm_90
	Exact        bool // for this architecture alone: sm_90a
	Major, Minor int  // of PTX the ISA's version, of machine code that of the ELF ABI
	Compressed   bool
	Data         []byte // aliases the fat binary
}

// String is the image's name as nvcc has it.
func (i Image) String() string {
	suffix := ""
	if i.Exact {
		suffix = "a"
	}
	if i.Kind == PTX {
		return fmt.Sprintf("PTX %d.%d for compute_%d%s", i.Major, i.Minor, i.Arch, suffix)
	}
	return fmt.Sprintf("machine code for sm_%d%s", i.Arch, suffix)
}

// Parse lists the images of a fat binary.
func Parse(data []byte) ([]Image, error) {
	if len(data) < headerBytes || binary.LittleEndian.Uint32(data) != magic {
		return nil, fmt.Errorf("fat binary of %d bytes: no header", len(data))
	}
	header, body := uint64(binary.LittleEndian.Uint16(data[6:])), binary.LittleEndian.Uint64(data[8:])
	if header < headerBytes || header > uint64(len(data)) || body > uint64(len(data))-header {
		return nil, fmt.Errorf("fat binary of %d bytes: the header says %d + %d", len(data), header, body)
	}
	var images []Image
	for rest := data[header : header+body]; len(rest) > 0; {
		if len(rest) < imageBytes {
			return nil, fmt.Errorf("fat binary: image %d: %d bytes are left, want a header of %d", len(images), len(rest), imageBytes)
		}
		size, n := uint64(binary.LittleEndian.Uint32(rest[4:])), binary.LittleEndian.Uint64(rest[8:])
		if size < imageBytes || size > uint64(len(rest)) || n > uint64(len(rest))-size {
			return nil, fmt.Errorf("fat binary: image %d: the header says %d + %d bytes, %d are left", len(images), size, n, len(rest))
		}
		flags := binary.LittleEndian.Uint32(rest[40:])
		images = append(images, Image{
			Kind: int(binary.LittleEndian.Uint16(rest)), Arch: int(binary.LittleEndian.Uint32(rest[28:])), Exact: flags&exactFlag != 0,
			Minor: int(binary.LittleEndian.Uint16(rest[24:])), Major: int(binary.LittleEndian.Uint16(rest[26:])),
			Compressed: flags&compressions != 0, Data: rest[size : size+n],
		})
		rest = rest[size+n:]
	}
	return images, nil
}
