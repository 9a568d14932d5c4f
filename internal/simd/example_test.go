package simd_test

import (
	"fmt"

	"glimpse/internal/simd"
)

// A linear layer: two rows of three features by a weight of two outputs.
func ExampleGemmNT() {
	x := []float32{
		1, 2, 3,
		4, 5, 6,
	}
	w := []float32{
		1, 0, 1,
		0, 2, 0,
	}
	y := make([]float32, 4)
	simd.GemmNT(2, 2, 3, 1, x, 3, w, 3, 0, y, 2)
	fmt.Println(y)
	// Output: [4 4 10 10]
}
