package kvcache

import (
	"slices"
	"strings"
	"testing"

	"glimpse/kernels"
)

// biases are those of a head, nil of none.
func (c *Cache) biases(layer, head int) []float64 {
	if kv := c.View(layer)[head]; kv.Biased() > 0 {
		return kv.Bias.Float64s()
	}
	return nil
}

// TestBiasesGoWithTheirEntries: through evictions, forks, growth and truncation every entry keeps its bias, and what is appended has none.
func TestBiasesGoWithTheirEntries(t *testing.T) {
	for _, device := range []string{"cpu", "reference64"} {
		c := newTestCache(t, device, 2, 2, testDim)
		c.grow(8)
		plain := c.Bytes()
		values := make([]float32, 8*testDim)
		for i := range values {
			values[i] = float32(i)
		}
		if err := c.Refit(1, 0, values, []float32{10, 11, 12, 13, 14, 15, 16, 17}); err != nil {
			t.Fatal(err)
		}
		if err := c.Refit(0, 1, nil, []float32{20, 21, 22}); err != nil {
			t.Fatal(err)
		}
		if got, want := c.Bytes()-plain, int64(11*c.On(0).Compute().Size()); got != want || !c.Biased() {
			t.Errorf("%s: biases take %d bytes, want %d", device, got, want)
		}
		if kv := c.View(1)[0]; kv.V.Float64s()[testDim] != testDim || kv.K.Float64s()[testDim] == testDim {
			t.Errorf("%s: value %v and key %v, want the value alone to be refitted", device, kv.V.Float64s()[testDim], kv.K.Float64s()[testDim])
		}
		c.grow(3)
		check := func(what string, of *Cache, want10, want01 []float64) {
			t.Helper()
			if got := of.biases(1, 0); !slices.Equal(got, want10) {
				t.Errorf("%s: %s: biases %v, want %v", device, what, got, want10)
			}
			if got := of.biases(0, 1); !slices.Equal(got, want01) {
				t.Errorf("%s: %s: biases %v, want %v", device, what, got, want01)
			}
			if of.biases(0, 0) != nil || of.biases(1, 1) != nil {
				t.Errorf("%s: %s: biases of heads that have none", device, what)
			}
		}
		all, first := []float64{10, 11, 12, 13, 14, 15, 16, 17}, []float64{20, 21, 22}
		check("appended", c, all, first)
		fork, err := c.ForkFor(4)
		if err != nil {
			t.Fatal(err)
		}
		fork.grow(20)
		check("forked and grown", fork, all, first)
		keep := [][][]int32{{{0, 3}, {3, 5, 10}}, {{1, 4, 9}, {0}}}
		some, err := c.Fork(keep)
		if err != nil {
			t.Fatal(err)
		}
		check("forked in part", some, []float64{11, 14}, nil)
		if err := c.Retain(1, [][]int32{{0, 2, 7, 8, 10}, {1}}); err != nil {
			t.Fatal(err)
		}
		check("retained", c, []float64{10, 12, 17}, first)
		if err := c.Truncate(5); err != nil {
			t.Fatal(err)
		}
		check("truncated", c, []float64{10, 12}, first)
		check("the fork, after all that", fork, all, first)
		if err := c.Retain(0, [][]int32{{0}, {3, 4}}); err != nil {
			t.Fatal(err)
		}
		check("biased entries gone", c, []float64{10, 12}, nil)
	}
}

// TestRefitRefuses: numbers that do not fit, and a device whose attention reads no biases.
func TestRefitRefuses(t *testing.T) {
	c := newTestCache(t, "cpu", 1, 1, testDim)
	c.grow(3)
	for _, err := range []error{c.Refit(0, 0, make([]float32, 2*testDim), nil), c.Refit(0, 0, nil, make([]float32, 4))} {
		if err == nil || !strings.Contains(err.Error(), "refit layer 0 head 0") {
			t.Errorf("got %v", err)
		}
	}
	if c.Biased() {
		t.Error("biases after errors")
	}
	if err := c.Refit(0, 0, nil, []float32{1}); err != nil || c.Refit(0, 0, nil, nil) != nil || c.Biased() {
		t.Errorf("biases that were taken away: %v", err)
	}
	if kv := (kernels.KV{}); kv.Biased() != 0 {
		t.Error("biases of no pairs")
	}
}
