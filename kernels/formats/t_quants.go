package formats

// Numbers of -1, 0 and 1 with one half-precision scale for 256 (BitNet b1.58, arXiv:2402.17764).
func init() {
	// 2 bits a number: 32 neighbours have the same bits of 32 bytes.
	addBlocks("TQ2_0", 256, 66, 0, func(dst []float32, src []byte) {
		d := half(src[64:])
		for group := range 8 {
			x := dst[32*group:][:32]
			for i, b := range src[group/4*32:][:32] {
				x[i] = d * float32(int(b>>(group%4*2)&3)-1)
			}
		}
	})
	// A byte is a fraction of five digits to the base 3, rounded up: times a power of 3, without what exceeds a byte, it is
	// the fraction of the digits that are left. The last 16 numbers have four digits a byte.
	addBlocks("TQ1_0", 256, 54, 0, func(dst []float32, src []byte) {
		d, x := half(src[52:]), dst[:256]
		for _, part := range []struct{ from, to, digits int }{{0, 32, 5}, {32, 48, 5}, {48, 52, 4}} {
			power := byte(1)
			for range part.digits {
				for i, b := range src[part.from:part.to] {
					x[i] = d * float32(int(b*power)*3>>8-1)
				}
				x, power = x[part.to-part.from:], power*3
			}
		}
	})
}
