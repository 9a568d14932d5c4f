package collective_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"glimpse/internal/collective"
)

// world is the group of ranks that a launcher has started; MPI starts once in a process.
var world = sync.OnceValues(collective.World)

func TestMain(m *testing.M) {
	code := m.Run()
	if g, err := world(); err == nil && code == 0 {
		if err := g.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// BenchmarkChain is a step's sum of 20 M gradients over the ranks of a launcher, as training adds
// them, each rank those of one sample. All ranks have to do as many:
//
//	go test -c -o chain.test ./internal/collective
//	mpirun -n 4 ./chain.test -test.run XXX -test.bench Chain -test.benchtime 10x
func BenchmarkChain(b *testing.B) {
	g, err := world()
	if err != nil {
		b.Fatal(err)
	}
	if g.Size() == 1 {
		b.Skip("one rank: start it with mpirun")
	}
	const n = 20_000_000
	piece := collective.PieceLen(n, g.Size())
	x, own := make([]float32, n), make([]float32, n)
	for i := range own {
		x[i], own[i] = 1, 1
	}
	s := &collective.Messages{Group: g, Put: func(p int) {
		sum, own := x[p*piece:min((p+1)*piece, n)], own[p*piece:]
		for i := range sum {
			sum[i] += own[i]
		}
	}}
	for at := 0; at < n; at += piece {
		s.Memory = append(s.Memory, [][]byte{collective.Bytes(x[at:min(at+piece, n)])})
	}
	b.SetBytes(4 * n)
	for b.Loop() {
		if err := collective.Chain(context.Background(), g.Rank(), g.Size(), s); err != nil {
			b.Fatal(err)
		}
	}
}
