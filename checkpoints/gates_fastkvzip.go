package checkpoints

import "fmt"

// readFastKVzip reads the file in which Fast KVzip publishes gates: what torch.save has made of a dictionary whose "module" is a
// list with the tensors of each layer's gate by name.
func readFastKVzip(name string, data []byte) ([]GateLayer, error) {
	root, err := readTorch(name, data)
	if err != nil {
		return nil, err
	}
	stored, ok := root.(torchDict)
	layers, isList := stored["module"].(*torchList)
	if !ok || !isList || len(layers.items) == 0 {
		return nil, Corruptf("%s: want a dictionary with a list \"module\" of the layers' gates", name)
	}
	out := make([]GateLayer, len(layers.items))
	for l, item := range layers.items {
		tensors, ok := item.(torchDict)
		if !ok {
			return nil, Corruptf("%s: layer %d: want a dictionary of tensors", name, l)
		}
		out[l] = make(GateLayer)
		for key, x := range tensors {
			t, ok := x.(*torchTensor)
			if !ok {
				return nil, Corruptf("%s: layer %d: %.100q: want a tensor", name, l, key)
			}
			if out[l][key], err = t.matrix(); err != nil {
				return nil, fmt.Errorf("%s: layer %d: %.100q: %w", name, l, key, err)
			}
		}
		if !out[l].Is(LowRankGate) {
			return nil, Corruptf("%s: layer %d: want the tensors %s and no others", name, l, listNames(LowRankGate))
		}
	}
	return out, nil
}
