package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// weightRow is how fast a decoding step's products read a weight [N, K] in bf16.
type weightRow struct {
	N    int     `json:"n"`
	K    int     `json:"k"`
	Rows int     `json:"rows"` // that meet it
	GBs  float64 `json:"gb_s"` // bytes of the weight, from device memory
}

// weightRows are the sequences of a batch that are measured.
var weightRows = []int{1, 2, 4, 8}

// measureWeights measures linear layers alone, recorded as steps are, on so many weights in
// turn that none is read from a cache.
func (b *bench) measureWeights(ctx context.Context) (rows []weightRow, err error) {
	for _, shape := range b.sizes.weights {
		n, k := shape[0], shape[1]
		w := randomWeight(n, k)
		copies := make([]*kernels.Tensor, max(2, b.sizes.copyBytes/16/w.Bytes()))
		for i := range copies {
			copies[i] = b.meter.Place(w)
		}
		for _, m := range weightRows {
			x, y := b.meter.Alloc(kernels.F32, m, k), b.meter.Alloc(kernels.F32, m, n)
			b.meter.Fill(x, 1)
			all := func(on kernels.Backend) {
				for _, w := range copies {
					on.Linear(y, x, w, nil, 1, 0)
				}
			}
			g := b.meter.NewGraph()
			if g == nil {
				return nil, errors.New("the device has no graphs, with which steps are decoded")
			}
			if !g.Record(func() { all(g.Backend()) }) {
				return nil, fmt.Errorf("weights %dx%d: products of %d rows cannot be recorded", n, k, m)
			}
			ms, err := b.median(ctx, func() error { g.Replay(); return nil })
			g.Close()
			if err != nil {
				return nil, err
			}
			row := weightRow{N: n, K: k, Rows: m, GBs: float64(len(copies)*w.Bytes()) / ms / 1e6}
			rows = append(rows, row)
			fmt.Printf("weight %dx%d, %d rows: %.0f GB/s\n", n, k, m, row.GBs)
		}
	}
	return rows, nil
}

// randomWeight is a weight of numbers that differ: zeros are faster than any data.
func randomWeight(n, k int) *kernels.Tensor {
	w := kernels.NewTensor(kernels.BF16, n, k)
	data, seed := w.U16(), uint32(1)
	some := data[:min(len(data), 1<<20)]
	for i := range some {
		seed = seed*1664525 + 1013904223
		some[i] = formats.F32ToBF16(float32(int32(seed)) / (1 << 31))
	}
	for at := len(some); at < len(data); at *= 2 {
		copy(data[at:], data[:at])
	}
	return w
}

func (r *report) writeWeights(w io.Writer, rows []weightRow) {
	fmt.Fprint(w, "\nA linear layer of a decoding step by itself, GB/s of its weight in bf16, of other weights in turn:\n\n")
	head := []string{"weight", "MB"}
	for _, m := range weightRows {
		head = append(head, "rows: "+strconv.Itoa(m))
	}
	t := newTable(w, head...)
	for len(rows) >= len(weightRows) {
		one := rows[:len(weightRows)]
		rows = rows[len(weightRows):]
		cells := []string{fmt.Sprintf("%d × %d", one[0].N, one[0].K), number("%.1f", 2*float64(one[0].N)*float64(one[0].K)/1e6)}
		for _, row := range one {
			cells = append(cells, number("%.0f", row.GBs))
		}
		t.row(cells...)
	}
}
