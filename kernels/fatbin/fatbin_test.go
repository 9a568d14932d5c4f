package fatbin

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// image is one with a header of 64 bytes.
func image(kind, arch, major, minor int, flags uint32, data string) []byte {
	h := make([]byte, imageBytes)
	binary.LittleEndian.PutUint16(h, uint16(kind))
	binary.LittleEndian.PutUint32(h[4:], imageBytes)
	binary.LittleEndian.PutUint64(h[8:], uint64(len(data)))
	binary.LittleEndian.PutUint16(h[24:], uint16(minor))
	binary.LittleEndian.PutUint16(h[26:], uint16(major))
	binary.LittleEndian.PutUint32(h[28:], uint32(arch))
	binary.LittleEndian.PutUint32(h[40:], flags)
	return append(h, data...)
}

func fat(images ...[]byte) []byte {
	h := binary.LittleEndian.AppendUint32(nil, magic)
	h = binary.LittleEndian.AppendUint16(h, 1)
	h = binary.LittleEndian.AppendUint16(h, headerBytes)
	size := 0
	for _, i := range images {
		size += len(i)
	}
	h = binary.LittleEndian.AppendUint64(h, uint64(size))
	for _, i := range images {
		h = append(h, i...)
	}
	return h
}

func TestParse(t *testing.T) {
	got, err := Parse(fat(image(ELF, 90, 1, 7, 0x11|exactFlag, "elf"), image(ELF, 100, 1, 8, 0x2011, "lz"), image(PTX, 80, 7, 4, 0x11, "text")))
	want := "[machine code for sm_90a machine code for sm_100 PTX 7.4 for compute_80]"
	if err != nil || fmt.Sprint(got) != want {
		t.Fatalf("got %v and error %v, want %s", got, err, want)
	}
	if string(got[0].Data) != "elf" || string(got[2].Data) != "text" || got[0].Compressed || !got[1].Compressed || got[1].Minor != 8 {
		t.Errorf("got %+v", got)
	}
}

// TestParseDamaged: no length in a header is believed.
func TestParseDamaged(t *testing.T) {
	good := fat(image(ELF, 90, 1, 7, 0, "elf"), image(PTX, 80, 7, 4, 0, "text"))
	for n := range good {
		if _, err := Parse(good[:n]); err == nil {
			t.Errorf("%d bytes of %d: no error", n, len(good))
		}
	}
	for _, at := range []int{0, 6, 8, 15, 16 + 4, 16 + 8, 16 + 15} {
		bad := append([]byte(nil), good...)
		bad[at] ^= 0xFF
		if _, err := Parse(bad); err == nil || !strings.HasPrefix(err.Error(), "fat binary") {
			t.Errorf("byte %d: error %v", at, err)
		}
	}
}
