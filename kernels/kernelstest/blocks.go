package kernelstest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"glimpse/kernels"
)

// outOfOrder stands behind a format whose columns lie in another order.
const outOfOrder = ", out of order"

// blockTolerance is about the error of rounding weights to bfloat16, as some products do.
const blockTolerance = 4e-3

// BlockCases are the products by quantised weights. Rows are such that bytes hold them exactly.
func BlockCases() []Conformance {
	var cases []Conformance
	add := func(op, name string, run func(d Device, rng *rand.Rand) []Output) {
		cases = append(cases, Conformance{Op: op, Name: name, tol: blockTolerance, run: run})
	}
	for _, format := range []string{"NVFP4", "MXFP8", "Q4_1", "Q4_K", "Q6_K", "Q8_0", "E4M3_F32", "I8Z_F16", "I4_F16" + outOfOrder} {
		for i, m := range []int{1, 3, 16, 17, 70, 300} {
			k, n := 512, 256
			if m == 300 { // a processor moves a part at a time
				if k, n = 64, 64; !strings.HasSuffix(format, outOfOrder) {
					continue
				}
			}
			v := Variants[i%len(Variants)]
			name := fmt.Sprintf("%dx%dx%d %s alpha=%v beta=%v", m, k, n, format, v.Alpha, v.Beta)
			add("Linear", name, func(d Device, rng *rand.Rand) []Output {
				x, weight, y := d.Tensor(bytesExactly(rng, m*k), m, k), d.Blocks(rng, format, n, k), d.Target(rng, v.Beta, m, n)
				bias := d.Tensor(Random(rng, n, 1), n)
				d.B.Linear(y, x, weight, bias, v.Alpha, v.Beta)
				return []Output{{Name: "y", Values: y.Float64s()}}
			})
			add("MatMul", name, func(d Device, rng *rand.Rand) []Output {
				x, weight, y := d.Tensor(bytesExactly(rng, m*k), m, k), d.Blocks(rng, format, k, n), d.Target(rng, v.Beta, m, n)
				d.B.MatMul(y, x, weight, v.Alpha, v.Beta)
				return []Output{{Name: "c", Values: y.Float64s()}}
			})
		}
		add("Gather", format, func(d Device, rng *rand.Rand) []Output {
			table, y := d.Blocks(rng, format, 9, 512), d.Garbage(4, 512)
			d.B.Gather(y, table, []int32{8, 0, 3, 3})
			return []Output{{Name: "y", Values: y.Float64s()}}
		})
	}
	return cases
}

// bytesExactly are multiples of 1/128; the largest of each 32 is 127/128.
func bytesExactly(rng *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(float32(rng.IntN(255)-127) / 128)
		if i%32 == 7 {
			x[i] = 127. / 128
		}
	}
	return x
}

// Blocks is a random weight in a format.
func (d Device) Blocks(rng *rand.Rand, format string, rows, width int) *kernels.Tensor {
	format, ordered := strings.CutSuffix(format, outOfOrder)
	dtype, err := kernels.ParseStored(format)
	if err != nil {
		panic(err)
	}
	f, _ := dtype.Format()
	data := make([]byte, dtype.Bytes(rows*width))
	f.Draw(data, rng)
	t, err := kernels.FromBytes(dtype, data, rows, width)
	if err != nil {
		panic(err)
	}
	if ordered {
		t = t.InOrder(moved(rng, width))
	}
	return d.B.Place(t)
}

// moved is an order of columns in which bytesExactly are still exact in every 32: the largest ones change places
// among themselves.
func moved(rng *rand.Rand, width int) []int32 {
	order := make([]int32, width)
	var of [2][]int32
	kind := func(i int) int {
		if i%32 == 7 {
			return 1
		}
		return 0
	}
	for i := range width {
		of[kind(i)] = append(of[kind(i)], int32(i))
	}
	for _, columns := range of {
		rng.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
	}
	for i := range order {
		of := &of[kind(i)]
		order[i], *of = (*of)[0], (*of)[1:]
	}
	return order
}
