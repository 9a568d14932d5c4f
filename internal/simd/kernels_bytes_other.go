//go:build !amd64 && !arm64

package simd

// bytePanels: there is no such assembly for these processors, so that quantisePanel is not called.
func (f *Blocks) bytePanels() (format bytePanels, ok bool) { return format, false }

func bytesExtension() string { return "" }

func quantisePanel(dst *byte, src *float32, records, offset int) {
	panic("simd: no panels of bytes")
}
