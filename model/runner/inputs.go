package runner

import (
	"glimpse/kernels"
	"glimpse/model"
)

// attentionReaders are the modules that read the rows that layer l's first norm gives.
func attentionReaders(m *model.Model, l int) []model.Module {
	if m.Network.Layers[l].Shared() {
		return parallelReaders
	}
	return parallelReaders[:3]
}

var parallelReaders = []model.Module{model.QProj, model.KProj, model.VProj, model.GateProj, model.UpProj}

// inputType is the type of rows that modules of layer l read: BF16 where all of them
// would round so many rows, so that they are rounded once.
func inputType(m *model.Model, l, rows int, modules ...model.Module) kernels.DType {
	if m.Network.Layers[l].AttentionNorm.Weight == nil { // they read the residual stream
		return m.Backend.Compute()
	}
	for _, module := range modules {
		switch lin := m.Network.Layers[l].Linear(module); {
		case lin == nil && (m.Network.Layers[l].Experts != nil || m.Network.Layers[l].Recurrent != nil): // which read them
			return m.Backend.Compute()
		case lin != nil && !m.Backend.RoundsToBF16(rows, lin.Weight):
			return m.Backend.Compute()
		}
	}
	return kernels.BF16
}

// input allocates rows of the given width for modules of layer l to read.
func (r *Runner) input(l, rows, width int, modules ...model.Module) *kernels.Tensor {
	return r.arena.Alloc(inputType(r.Model, l, rows, modules...), rows, width)
}
