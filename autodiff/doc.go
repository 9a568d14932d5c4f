// Package autodiff builds and runs differentiable graphs on the tensors of a
// kernels.Backend with gorgonia, and is the only package that imports gorgonia.
//
// A [Graph] is built, differentiated and compiled once and then run for every
// sample. Lengths never enter the graph: operations hold a pointer to the
// [Sample], which is overwritten before each run, so one compiled graph serves
// prompts of every length.
//
//	g, err := autodiff.Build(func(g *autodiff.Graph) (autodiff.Node, error) {
//		rows := g.Parameter("embeddings", embeddings)
//		…
//		return g.Loss(scores, sample, kl, autodiff.Node{}, nil), nil
//	}, backend)
//	*sample = autodiff.Sample{…}
//	value, err := g.Run()
//	gradient := g.Gradient(0)
//
// Frozen weights are not nodes: the operations hold them as plain tensors in
// their stored type, so nothing copies them, differentiates them or writes to
// them.
//
// Every value of a run lies in an arena that the next run reuses; gradients must
// be consumed before it.
package autodiff
