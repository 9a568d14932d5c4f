package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Names of tensors in checkpoints that were not saved by save_pretrained.
var (
	// wrapperParts are modules that torch.compile, FSDP and activation checkpointing put
	// around any other.
	wrapperParts = []string{"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
	// wrapperPrefixes stand before the names of a whole model: of DataParallel, of PEFT, and
	// of models of text and images.
	wrapperPrefixes = []string{"module.", "base_model.model.", "language_model."}
	// basePrefixes are missing where AutoModel saved the model without its head.
	basePrefixes = []string{"model.", "transformer."}
	// otherModalities are the modules beside the language model of models of text and images
	// or sound, which a prompt of text does not reach.
	otherModalities = []string{"vision_tower", "vision_model", "visual", "multi_modal_projector", "mm_projector", "audio_tower"}
)

// canonicalNames makes the names of the stored tensors those that the family asks for,
// whatever the program that saved them put before.
func (m *Model) canonicalNames(slots []slot) error {
	wanted := make(map[string]bool, len(slots))
	for _, s := range slots {
		wanted[s.name] = true
	}
	renamed := map[string]string{}
	for _, name := range m.weights.Names() {
		if to := canonicalName(name, wanted); to != name {
			renamed[name] = to
		}
	}
	if len(renamed) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(renamed)))
	m.addNote("weights: %d tensors have other names than %s gives them, as %.200q for %.200q", len(renamed), m.Config.Architecture, first, renamed[first])
	return m.weights.Rename(renamed)
}

// canonicalName is the name that the family asks for, or else the name without wrappers.
func canonicalName(name string, wanted map[string]bool) string {
	if wanted[name] {
		return name
	}
	parts := slices.DeleteFunc(strings.Split(name, "."), func(part string) bool { return slices.Contains(wrapperParts, part) })
	name = strings.Join(parts, ".")
	for again := true; again; {
		again = false
		for _, prefix := range wrapperPrefixes {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				name, again = rest, true
			}
		}
	}
	// Later versions of transformers: model.language_model.layers beside model.vision_tower.
	if rest, ok := strings.CutPrefix(name, "model.language_model."); ok {
		name = "model." + rest
	}
	for _, base := range basePrefixes {
		if !wanted[name] && wanted[base+name] {
			return base + name
		}
	}
	return name
}

// surplus are errors of tensors that the family does not ask for, all tensors of a module that it does
// not have in one. Modules for images and sound are a note.
func (m *Model) surplus(names []string, wanted map[string]bool) []error {
	known := map[string]bool{"": true} // the modules that the family has
	for name := range wanted {
		for i, c := range name {
			if c == '.' {
				known[name[:i]] = true
			}
		}
	}
	groups := map[string][]string{}
	for _, name := range names {
		group := foreignModule(name, known)
		groups[group] = append(groups[group], name)
	}
	var errs []error
	if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, ".lora_A.") }) {
		errs = append(errs, errors.New("LoRA factors stand beside the weights: PEFT's merge_and_unload() merges them"))
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		last := group[strings.LastIndexByte(group, '.')+1:]
		_, err := strconv.Atoi(last)
		switch n := len(groups[group]); {
		case slices.Contains(otherModalities, last):
			m.addNote("weights: %d tensors %s.* are not used: only text is read", n, group)
		case n > 1 && err != nil:
			errs = append(errs, fmt.Errorf("%d tensors %.200q: surplus, the architecture %s has no such module", n, group+".*", m.Config.Architecture))
		default: // one, or a layer too many
			for _, name := range groups[group] {
				errs = append(errs, fmt.Errorf("%.200q: surplus, the architecture %s has no such tensor", name, m.Config.Architecture))
			}
		}
	}
	return errs
}

// isFurther tells that a tensor is of a layer that predicts further tokens, or of the keys and values of one that reads another's.
func (c *Config) isFurther(name string) bool {
	if c.unused != "" && strings.HasPrefix(name, c.unused) {
		return true
	}
	for l := range c.Layers {
		if at := fmt.Sprintf("model.layers.%d.self_attn.", l); c.KVLayer(l) != l && (strings.HasPrefix(name, at+"k_") || strings.HasPrefix(name, at+"v_")) {
			return true
		}
	}
	for l := c.Layers; l < c.Layers+c.further; l++ {
		if strings.HasPrefix(name, fmt.Sprintf("model.layers.%d.", l)) {
			return true
		}
	}
	return false
}

// foreignModule is the outermost module of a tensor's name that is not known, or the name.
func foreignModule(name string, known map[string]bool) string {
	for i, c := range name {
		if c == '.' && !known[name[:i]] {
			return name[:i]
		}
	}
	return name
}
