package training

import (
	"context"
	"errors"

	"glimpse/internal/collective"
	"glimpse/kernels"
)

// connect connects this rank's device with the others' devices, so that gradients pass between
// them; without, they go through the host.
func (t *Trainer) connect(ctx context.Context) error {
	devices := t.Model.Devices()
	if len(devices) > 1 {
		t.notice("gradients go through the host and MPI: the model is on several devices")
		return nil
	}
	link, err := t.Model.Backend.Connect(ctx, t.ranks)
	var none *kernels.NoLinkError
	switch {
	case errors.As(err, &none):
		t.notice("gradients go through the host and MPI: " + none.Why)
		return nil
	case err != nil || link == nil: // nil: their memory is the host's
		return err
	}
	t.link = link
	t.notice("gradients go from device to device by " + link.Name())
	return nil
}

// notice says something once, on rank 0.
func (t *Trainer) notice(text string) {
	if t.Notice != nil && t.Writes() {
		t.Notice(text)
	}
}

// keepGradient is a copy of a gradient that the next sample overwrites, where fold takes it from.
func (t *Trainer) keepGradient(x *kernels.Tensor) *kernels.Tensor {
	if t.link == nil {
		h := kernels.NewTensor(x.DType, x.Shape...)
		kernels.Convert(h, x)
		return h
	}
	on := t.Model.Backend
	y := on.Alloc(x.DType, x.Shape...)
	on.Copy(y, x)
	return y
}

// foldOnDevices is fold between the memories of devices.
func (t *Trainer) foldOnDevices(ctx context.Context, sums []*kernels.Tensor, kept [][]*kernels.Tensor) error {
	flat := func(ts []*kernels.Tensor) (out []*kernels.Tensor) {
		for _, x := range ts {
			out = append(out, x.Reshape(x.Len()))
		}
		return out
	}
	s := &deviceSums{on: t.Model.Backend, link: t.link, sums: flat(sums), pieces: cutPieces(sums, devicePiece)}
	for _, sample := range kept {
		if sample != nil {
			s.kept = append(s.kept, flat(sample))
		}
	}
	if err := collective.Chain(ctx, t.ranks.Rank(), t.ranks.Size(), s); err != nil {
		return err
	}
	return t.link.Wait(ctx)
}

// deviceSums are sums in the memory of a device. What is exchanged and added is queued in the
// order of the calls.
type deviceSums struct {
	on     kernels.Backend
	link   kernels.Link
	pieces [][]stretch
	sums   []*kernels.Tensor   // [numbers]
	kept   [][]*kernels.Tensor // [sample][tensor]

	moves []kernels.LinkMove
}

func (s *deviceSums) Pieces() int { return len(s.pieces) }

func (s *deviceSums) Exchange(ctx context.Context, moves []collective.Move) error {
	s.moves = s.moves[:0]
	for _, m := range moves {
		for _, p := range s.pieces[m.Piece] {
			s.moves = append(s.moves, kernels.LinkMove{Peer: m.Peer, Sends: m.Sends, Tensor: s.sums[p.tensor].Rows(p.from, p.to)})
		}
	}
	return s.link.Move(ctx, s.moves)
}

func (s *deviceSums) Add(piece int) {
	for _, p := range s.pieces[piece] {
		for _, sample := range s.kept {
			s.on.Axpy(s.sums[p.tensor].Rows(p.from, p.to), 1, sample[p.tensor].Rows(p.from, p.to))
		}
	}
}
