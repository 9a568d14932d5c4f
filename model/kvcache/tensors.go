package kvcache

import (
	"encoding/binary"
	"errors"
	"fmt"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
)

// Tensors are what the cache holds, in host memory, for a file: of every KV head with pairs its keys, its values, their positions
// and the biases of those that have some, of a recurrent layer its state. They are the cache's own memory where that is the host's.
func (c *Cache) Tensors() (out []checkpoints.TensorView, err error) {
	defer kernels.CatchDevice(&err)
	for l := range c.layers {
		if isRecurrent(c.layers[l]) {
			for i, t := range c.State(l) {
				out = append(out, viewOf(stateName(l, i), t))
			}
			continue
		}
		p := c.pairs(l)
		p.settle()
		for h := range p.heads {
			kv, name := p.view(h, new(kernels.Tensor), new(kernels.Tensor)), headName(l, h)
			positions := make([]byte, 0, 4*len(kv.Positions))
			for _, at := range kv.Positions {
				positions = binary.LittleEndian.AppendUint32(positions, uint32(at))
			}
			out = append(out, viewOf(name+".keys", kv.K), viewOf(name+".values", kv.V),
				checkpoints.TensorView{Name: name + ".positions", DType: kernels.I32, Shape: []int{len(kv.Positions)}, Data: positions})
			if kv.Biased() > 0 {
				out = append(out, viewOf(name+biasSuffix, kv.Bias))
			}
		}
	}
	return out, nil
}

func headName(layer, head int) string { return fmt.Sprintf("layers.%d.heads.%d", layer, head) }

func stateName(layer, i int) string { return fmt.Sprintf("layers.%d.state.%d", layer, i) }

// viewOf is a tensor as it is written: numbers by their type, rows of blocks and in groups by their bytes.
func viewOf(name string, t *kernels.Tensor) checkpoints.TensorView {
	t = t.OnHost()
	if t.DType.Numbers() != t.DType {
		return checkpoints.BytesTensor(name, t.StoredRows())
	}
	return checkpoints.TensorView{Name: name, DType: t.DType, Shape: t.Shape, Data: t.StoredRows()}
}

// Restore makes an empty cache of the same model and type the one that has written its Tensors to a file, whose next position was
// next, and whose rows are rotated by the frequencies of long prompts where long is set.
func (c *Cache) Restore(m *model.Model, s *checkpoints.Safetensors, next int32, long bool) (err error) {
	defer kernels.CatchDevice(&err)
	for l := range c.layers {
		if r, ok := c.layers[l].(*recurrent); ok {
			for i, t := range c.State(l) {
				host := kernels.NewTensor(t.DType, t.Shape...)
				if err := restoreRows(s, stateName(l, i), host); err != nil {
					return err
				}
				r.room.on.Copy(t, r.room.on.Place(host))
			}
			continue
		}
		p := c.pairs(l)
		for h := range p.heads {
			if err := p.restoreHead(s, headName(l, h), &p.heads[h], next); err != nil {
				return err
			}
		}
		if w, ok := c.layers[l].(*windowed); ok && w.slides() && len(p.heads) > 0 && len(p.heads[0].pos) > 0 {
			w.freed = p.heads[0].pos[0]
		}
	}
	c.next, c.long = next, long
	c.changed()
	return nil
}

// restoreHead reads the pairs of a head.
func (p *pairs) restoreHead(s *checkpoints.Safetensors, name string, h *headCache, next int32) error {
	raw, err := s.Raw(name + ".positions")
	if err != nil {
		return err
	}
	for ; len(raw) >= 4; raw = raw[4:] {
		h.pos = append(h.pos, int32(binary.LittleEndian.Uint32(raw)))
	}
	if err := CheckAscending(h.pos, int(next)); err != nil || len(raw) > 0 {
		return fmt.Errorf("tensor %s.positions: %w", name, errors.Join(err, checkpoints.ErrCorrupt))
	}
	n := len(h.pos)
	k, v := kernels.NewTensor(p.c.dtype, n, p.dim), kernels.NewTensor(p.c.dtype.OfValues(), n, p.dim)
	if err := errors.Join(restoreRows(s, name+".keys", k), restoreRows(s, name+".values", v)); err != nil {
		return err
	}
	if err := p.restoreBiases(s, name+biasSuffix, h); err != nil {
		return err
	}
	on := p.room.on
	if h.k, h.v = k, v; on.OwnMemory() {
		h.k, h.v = on.Alloc(k.DType, n, p.dim), on.Alloc(v.DType, n, p.dim)
		on.Copy(h.k, on.Place(k))
		on.Copy(h.v, on.Place(v))
	}
	return nil
}

// restoreRows reads a tensor of a file into a host tensor.
func restoreRows(s *checkpoints.Safetensors, name string, t *kernels.Tensor) error {
	raw, err := s.Raw(name)
	if err == nil {
		if info, _ := s.Info(name); t.DType.Numbers() == t.DType && info.DType != t.DType.String() {
			return fmt.Errorf("tensor %s: got type %s, want %s: %w", name, info.DType, t.DType, checkpoints.ErrCorrupt)
		}
		err = t.SetStoredRows(raw)
	}
	if err != nil {
		return fmt.Errorf("tensor %s: %w", name, err)
	}
	return nil
}
