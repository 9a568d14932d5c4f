package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
)

// TestInOrder: what lies at place j of a row is read as column columns[j], of the whole, of rows and one by one.
func TestInOrder(t *testing.T) {
	const rows, width = 5, 96
	d, err := kernels.ParseStored("Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	plain := kernels.NewTensor(d, rows, width)
	kernels.Convert(plain, kernels.FromF32(slices.Collect(func(yield func(float32) bool) {
		for range rows * width {
			if !yield(float32(rng.NormFloat64())) {
				return
			}
		}
	}), rows, width))
	order := make([]int32, width)
	for j, column := range rng.Perm(width) {
		order[j] = int32(column)
	}
	lies, moved := plain.Float32s(), plain.InOrder(order)
	want := make([]float32, rows*width)
	for i, x := range lies {
		want[i/width*width+int(order[i%width])] = x
	}
	if !slices.Equal(moved.Float32s(), want) || !slices.Equal(moved.Rows(1, 4).Reshape(3, width).Float32s(), want[width:4*width]) {
		t.Error("other numbers")
	}
	wide := kernels.Widened(moved)
	for i, x := range want {
		if moved.At(i) != float64(x) || wide.At(i) != kernels.Widened(plain).At(slices.Index(lies, x)) {
			t.Fatalf("element %d is %v, widened %v, want %v", i, moved.At(i), wide.At(i), x)
		}
	}
	some := make([]float64, 2*width)
	if kernels.Read(some, moved, 50); some[0] != float64(want[50]) || some[len(some)-1] != float64(want[50+len(some)-1]) {
		t.Error("a part across rows: other numbers")
	}
	if plain.InOrder(nil) != plain || plain.Order() != nil || !slices.Equal(moved.Rows(2, 3).Order(), order) {
		t.Error("other orders")
	}
	for want, f := range map[string]func(){
		"kernels: order of 95 columns of a Q8_0 tensor [5 96]":                     func() { plain.InOrder(order[1:]) },
		"kernels: order of 96 columns of a F32 tensor [1 96]":                      func() { kernels.NewTensor(kernels.F32, 1, width).InOrder(order) },
		"kernels: Convert into columns in another order":                           func() { kernels.Convert(plain, moved) },
		"kernels: shape [10 48] of a tensor [5 96] whose columns are out of order": func() { moved.Reshape(10, 48) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}
