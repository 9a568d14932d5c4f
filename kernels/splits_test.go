package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels/kernelstest"
)

// splitCases are n rounds of random shapes at whose sizes the CPU backend cuts its work
// in another way: tiles of attention, tasks of about minWork operations, products that
// use other kernels.
func splitCases(n int) []kernelstest.Conformance {
	rng := rand.New(rand.NewPCG(31, 37))
	near := func(edges ...int) int { return max(1, edges[rng.IntN(len(edges))]+rng.IntN(3)-1) }
	var (
		products [][3]int
		ropes    [][4]int
		rows     []kernelstest.RowShape
		losses   [][2]int
		lengths  []int
		attends  []kernelstest.AttendShape
	)
	const minWork = 1 << 15
	for range n {
		for range 3 {
			s := [3]int{near(1, 8, 12, 16, 48, 264), near(16, 64, 256, 1024, 4488), near(1, 8, 16, 32, 96)}
			s[rng.IntN(3)] = 1 + rng.IntN(24)
			products = append(products, s)
		}
		for range 4 { // few rows and about as many columns, of any depth
			m := 8 + rng.IntN(10)
			products = append(products, [3]int{m, near(600, 1200, 4488, 9000), m + rng.IntN(4) - 1})
		}
		tasks := 1 + rng.IntN(4)
		width := near(1, 16, 64, 700)
		rows = append(rows, kernelstest.RowShape{Rows: near(tasks*minWork/(width*[]int{2, 4, 6, 8}[rng.IntN(4)]) + 1), Width: width, Scale: 1})
		dim, heads := 2*near(2, 16, 32), 1+rng.IntN(5)
		rotated := []int{dim, max(2, dim/4*2)}[len(ropes)%2]
		ropes = append(ropes, [4]int{near(tasks*minWork/(2*heads*dim) + 1), heads, dim, rotated})
		entries := near(tasks*minWork/32/heads + 1)
		losses = append(losses, [2]int{heads, entries})
		lengths = append(lengths, near(tasks*minWork/[]int{1, 8, 16, 32, 64, 128}[rng.IntN(6)]))
		for i := range 2 {
			kv, group := 1+rng.IntN(2), 1+rng.IntN(4)
			s := kernelstest.AttendShape{Rows: near(1, 64/group, 128/group, 16, 32), Heads: kv * group, Dim: 2 * near(2, 4, 8), Own: i == 0}
			for range kv {
				past := near(1, 16, 256, 512, 1024, 1536)
				if !s.Own {
					past += s.Rows
				}
				s.Entries = append(s.Entries, past)
			}
			if rng.IntN(4) == 0 {
				s.Window, s.Evicted = near(1, 64, 512), true
			}
			if i == 0 && rng.IntN(2) == 0 {
				s.SoftCap, s.Sinks = 4, 1
			}
			s.Name = fmt.Sprintf("rows=%d/heads=%d/dim=%d/entries=%v/own=%v/window=%d", s.Rows, s.Heads, s.Dim, s.Entries, s.Own, s.Window)
			attends = append(attends, s)
		}
	}
	// One bfloat16 weight that is large enough for its rows to be rounded.
	products = append(products, [3]int{near(9, 16), 1024, 1024 + rng.IntN(40)})
	return slices.Concat(kernelstest.ProductCases(products), kernelstest.ElementCases(lengths, rows, ropes), kernelstest.LearningCases(losses, lengths), kernelstest.AttentionCases(attends))
}

// TestSplits runs random shapes on the CPU backend at every level: one thread agrees
// with the float64 reference, and 2 to 8 threads with one thread in every bit.
func TestSplits(t *testing.T) {
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	defer parallel.SetThreads(parallel.Threads())
	exact, d, rng := kernelstest.Open(t, "reference64"), kernelstest.Open(t, "cpu"), rand.New(rand.NewPCG(41, 43))
	cases := splitCases(rounds)
	wanted := make([][]kernelstest.Output, len(cases))
	for i, c := range cases {
		wanted[i] = c.RunOn(exact)
	}
	for _, level := range simd.Levels() {
		t.Run(level, func(t *testing.T) {
			restore, err := simd.Use(level)
			if err != nil {
				t.Fatal(err)
			}
			defer restore()
			for i, c := range cases {
				parallel.SetThreads(1)
				one := c.Compare(t, d, wanted[i])
				threads := 2 + rng.IntN(7)
				parallel.SetThreads(threads)
				for j, got := range c.RunOn(d) {
					if at := otherBits(got.Values, one[j].Values); at >= 0 {
						t.Errorf("%s %s: %s[%d] is %v with %d threads, %v with 1", c.Op, c.Name, got.Name, at, got.Values[at], threads, one[j].Values[at])
					}
				}
			}
		})
	}
}

// otherBits is the first index at which x and y differ in any bit, or −1.
func otherBits(x, y []float64) int {
	for i := range x {
		if math.Float64bits(x[i]) != math.Float64bits(y[i]) {
			return i
		}
	}
	return -1
}
