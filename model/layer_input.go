package model

import (
	"fmt"
	"math"

	"glimpse/kernels"
)

// LayerInput is what a layer reads of its rows beside the residual stream (per-layer embeddings of Gemma 4 E2B and E4B): an
// embedding of the row's token for this layer alone, and a projection of the embedding that the row began with. After
// the MLP a gate of the residual stream lets it through, and what it gives is added.
type LayerInput struct {
	Table      *kernels.Tensor // [vocab·layers, width]: row t·Layers + Layer is of token t
	Layers     int
	Layer      int
	Projection *kernels.Tensor // [width, hidden], of the embedding that a row began with
	Norm       Norm            // of the projection's output
	Scale      float64         // multiplies rows of the table
	Padding    int32           // the token that rows without one have: learned rows
	Unit       float64         // multiplies the residual stream for the gate
	PostNorm   Norm            // of the sum that enters the residual stream
}

// Rows writes the input of rows to y [rows, width]: tokens are theirs, e [rows, hidden] what they began with.
func (in *LayerInput) Rows(on kernels.Backend, arena *kernels.Arena, y, e *kernels.Tensor, tokens []int32) {
	mark := arena.Mark()
	defer arena.Release(mark)
	projected := arena.Alloc(y.DType, y.Shape...)
	on.Linear(projected, e, in.Projection, nil, 1, 0)
	on.Norm(y, projected, nil, kernels.Norm(in.Norm))
	in.AddTokens(on, arena, y, tokens)
}

// AddTokens adds the embeddings of tokens for the layer to y [rows, width].
func (in *LayerInput) AddTokens(on kernels.Backend, arena *kernels.Arena, y *kernels.Tensor, tokens []int32) {
	mark := arena.Mark()
	defer arena.Release(mark)
	ids, rows, scales := make([]int32, len(tokens)), make([]int32, len(tokens)), make([]float64, len(tokens))
	for i, id := range tokens {
		ids[i], rows[i], scales[i] = id*int32(in.Layers)+int32(in.Layer), int32(i), in.Scale
	}
	own := arena.Alloc(y.DType, y.Shape...)
	on.Gather(own, in.Table, ids)
	on.AddRows(y, own, rows, scales)
}

// inputsLayout are the inputs of all layers, as Gemma 4 stores them.
type inputsLayout struct {
	width   int     // of a layer's input
	scale   float64 // of the table
	padding int32
}

// checkWidth holds the width to what the table's rows can be numbered by.
func (x *inputsLayout) checkWidth(c *Config) error {
	if x.width < 1 || x.width > 1<<16 || c.Vocab*c.Layers > math.MaxInt32 {
		return fmt.Errorf("hidden_size_per_layer_input: got %d for %d layers and %d tokens, want 0 to %d, and fewer rows than %d", x.width, c.Layers, c.Vocab, 1<<16, math.MaxInt32)
	}
	if x.padding < 0 || int(x.padding) >= c.Vocab {
		return fmt.Errorf("pad_token_id: got %d, want 0 to %d: learned rows have its embeddings of layers", x.padding, c.Vocab-1)
	}
	return nil
}

// bindInputs lays out what all layers' inputs are made of. Their sum is divided by √2, which the norm and the table's scale have.
func (x *inputsLayout) bindInputs(c *Config, n *Network, b *Binder, stream float64) {
	for i := range n.Layers {
		n.Layers[i].Input = &LayerInput{Layers: c.Layers, Layer: i, Scale: x.scale / math.Sqrt2, Padding: min(x.padding, int32(c.Vocab-1)), Unit: stream}
	}
	all := func(name string, shape []int, set func(in *LayerInput, t *kernels.Tensor)) slot {
		return slot{name: name, shape: shape, set: func(t *kernels.Tensor) {
			for i := range n.Layers {
				set(n.Layers[i].Input, t)
			}
		}}
	}
	b.addSlot(all("model.embed_tokens_per_layer.weight", []int{c.Vocab, c.Layers * x.width}, func(in *LayerInput, t *kernels.Tensor) {
		in.Table = t.Reshape(c.Vocab*c.Layers, x.width)
	}))
	b.addSlot(all("model.per_layer_model_projection.weight", []int{c.Layers * x.width, c.Hidden}, func(in *LayerInput, t *kernels.Tensor) {
		in.Projection = t.Rows(in.Layer*x.width, (in.Layer+1)*x.width)
	}))
	norm := all("model.per_layer_projection_norm.weight", []int{x.width}, func(in *LayerInput, t *kernels.Tensor) {
		// The projection of transformers is of embeddings times stream, over the root of their width.
		unit := stream / math.Sqrt(float64(c.Hidden))
		in.Norm = Norm{Weight: t, Eps: c.RMSNormEps / (unit * unit)}
	})
	norm.compute, norm.times = true, 1/math.Sqrt2
	b.addSlot(norm)
}

// bindLayer lays out what a layer does with its input.
func (x *inputsLayout) bindLayer(c *Config, l *Layer, b *Binder, at string, stream float64) {
	b.Matrix(at+string(InputGate)+".weight", &l.addModule(InputGate).Weight, x.width, c.Hidden)
	b.Matrix(at+string(InputProj)+".weight", &l.addModule(InputProj).Weight, c.Hidden, x.width)
	b.affine(at+"post_per_layer_input_norm.weight", &l.Input.PostNorm.Weight, c.Hidden, 0, 1/stream)
}
